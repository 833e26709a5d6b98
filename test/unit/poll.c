/* SPDX-License-Identifier: MIT */
/* The poller: what every backend must supply (B1 to B5), and what the runtime does with edges that are late, doubled or wrong. */
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <weft/thread.h>

#include "api/common.h"
#include "io/desc.h"
#include "os/os.h"
#include "poll/poll.h"
#include "sched/idle.h"

static weft__poller poller;
static int fd[2];

static void open_all(void) {
    poller = (weft__poller){.backend = &weft__epoll};
    CHECK_EQ(poller.backend->open(&poller), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
}
static void close_all(void) {
    poller.backend->close(&poller);
    close(fd[0]);
    close(fd[1]);
}
static int look(weft__edge *out, int max, int64_t until, bool *kicked) {
    return weft__epoll.wait(&poller, out, max, until, kicked);
}

TEST(poll, an_edge_is_told_once_with_its_key) {
    int fds = test_fds();
    weft__edge e[4];
    bool kicked;
    open_all();
    CHECK_EQ(weft__epoll.add(&poller, fd[0], 77), 0);
    CHECK_EQ(weft__epoll.add(&poller, fd[0], 78), -EEXIST);
    CHECK_EQ(look(e, 4, WEFT_POLL_NOW, &kicked), 1); /* it can be written to */
    CHECK_EQ(e[0].key, 77);
    CHECK_EQ(e[0].ready, WEFT_READY_WRITE);
    CHECK_EQ(look(e, 4, WEFT_POLL_NOW, &kicked), 0);
    CHECK_EQ(write(fd[1], "x", 1), 1);
    CHECK_EQ(look(e, 4, 0, &kicked), 1);
    CHECK(e[0].ready & WEFT_READY_READ);
    CHECK_EQ(look(e, 4, WEFT_POLL_NOW, &kicked), 0); /* nobody has read it, and it is told once */
    CHECK_EQ(weft__epoll.renew(&poller, fd[0], 79), 0);
    CHECK_EQ(look(e, 4, WEFT_POLL_NOW, &kicked), 1);
    CHECK_EQ(e[0].key, 79);
    CHECK_EQ(shutdown(fd[1], SHUT_WR), 0);
    CHECK_EQ(look(e, 4, 0, &kicked), 1);
    CHECK(e[0].ready & WEFT_READY_END);
    weft__epoll.remove(&poller, fd[0]);
    CHECK_EQ(send(fd[1], "x", 1, MSG_NOSIGNAL), -1);
    CHECK_EQ(look(e, 4, WEFT_POLL_NOW, &kicked), 0);
    close_all();
    CHECK_EQ(test_fds(), fds);
}

TEST(poll, files_are_refused_as_always_ready) {
    FILE *f = tmpfile();
    open_all();
    CHECK_EQ(weft__epoll.add(&poller, fileno(f), 1), -EPERM);
    CHECK_EQ(weft__epoll.add(&poller, 12345, 1), -EBADF);
    fclose(f);
    close_all();
}

TEST(poll, a_wait_ends_at_its_time) {
    weft__edge e[4];
    bool kicked;
    open_all();
    int64_t until = weft__os_now() + 300 * WEFT_US;
    do {
        CHECK_EQ(look(e, 4, until, &kicked), 0);
        CHECK(!kicked);
    } while (weft__os_now() < until);
    close_all();
}

static void *sleep_in_it(void *arg) {
    weft__edge e[4];
    bool kicked = false;
    while (!kicked) CHECK_EQ(look(e, 4, 0, &kicked), 0);
    atomic_store((atomic_int *)arg, 1);
    return NULL;
}

static void kicks_are_left(void) {
    weft__edge e[4];
    bool kicked;
    pthread_t t;
    static atomic_int woken;
    open_all();
    for (long i = test_scale(200, 10); i > 0; i--) {
        atomic_store(&woken, 0);
        CHECK_EQ(pthread_create(&t, NULL, sleep_in_it, &woken), 0);
        weft__epoll.kick(&poller);
        for (; !atomic_load(&woken); sched_yield())
            CHECK_EQ(look(e, 4, WEFT_POLL_NOW, &kicked), 0); /* we see it, and leave it */
        pthread_join(t, NULL);
    }
    CHECK_EQ(look(e, 4, WEFT_POLL_NOW, &kicked), 0);
    CHECK(!kicked); /* the sleeper has used it up */
    close_all();
}

TEST(poll, a_kick_is_left_by_those_who_only_look) { kicks_are_left(); }

/* A pipe holds fewer kicks than an eventfd counts: more than it has room for are one kick all the same. */
TEST(poll, kicks_come_through_a_pipe_where_there_is_no_eventfd) {
    int fds = test_fds();
    weft__edge e[4];
    bool kicked;
    setenv("WEFT_NO_EVENTFD", "1", 1);
    kicks_are_left();
    open_all();
    CHECK_NE(poller.kick_fd, poller.kick_in);
    for (int i = 0; i < 20000; i++) weft__epoll.kick(&poller);
    CHECK_EQ(look(e, 4, 0, &kicked), 0);
    CHECK(kicked);
    CHECK_EQ(look(e, 4, WEFT_POLL_NOW, &kicked), 0);
    CHECK(!kicked);
    close_all();
    CHECK_EQ(test_fds(), fds);
}

TEST(poll, without_epoll_pwait2_a_wait_ends_at_its_time_too) {
    weft__edge e[4];
    bool kicked;
    setenv("WEFT_NO_EPOLL_PWAIT2", "1", 1);
    open_all();
    int64_t until = weft__os_now() + 300 * WEFT_US;
    CHECK_EQ(look(e, 4, until, &kicked), 0);
    CHECK(!kicked);
    CHECK_GE(weft__os_now(), until); /* rounded up */
    close_all();
}

/* ---- a backend of our own: edges as we like them ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    weft__edge edges[64];
    int count, kicks;
    atomic_int added, fail_add;
    bool has[256]; /* by number */
    _Atomic uint64_t last_key;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int fake_open(weft__poller *p) {
    pthread_condattr_t monotonic; /* pthread_cond_clockwait is glibc's */
    (void)p;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&fake.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    fake.count = fake.kicks = 0;
    memset(fake.has, 0, sizeof fake.has);
    atomic_store(&fake.added, 0);
    return 0;
}
static void fake_close(weft__poller *p) {
    (void)p;
    pthread_cond_destroy(&fake.changed);
}
static int fake_renew(weft__poller *p, int fd_, uint64_t key) {
    (void)p, (void)fd_;
    fake.last_key = key;
    fake.added++;
    return fake.fail_add;
}
static int fake_add(weft__poller *p, int fd_, uint64_t key) {
    CHECK_GT(COUNT(fake.has), fd_);
    pthread_mutex_lock(&fake.lock);
    int err = fake.has[fd_] ? -EEXIST : fake_renew(p, fd_, key);
    if (!err) fake.has[fd_] = true;
    pthread_mutex_unlock(&fake.lock);
    return err;
}
static void fake_remove(weft__poller *p, int fd_) {
    (void)p;
    pthread_mutex_lock(&fake.lock);
    fake.has[fd_] = false;
    pthread_mutex_unlock(&fake.lock);
}
static int fake_wait(weft__poller *p, weft__edge *out, int max, int64_t until, bool *kicked) {
    (void)p;
    *kicked = false;
    pthread_mutex_lock(&fake.lock);
    if (until != WEFT_POLL_NOW) {
        struct timespec at = {(time_t)(until / WEFT_SECOND), (long)(until % WEFT_SECOND)};
        while (!fake.count && !fake.kicks) {
            if (!until)
                pthread_cond_wait(&fake.changed, &fake.lock);
            else if (pthread_cond_timedwait(&fake.changed, &fake.lock, &at))
                break;
        }
        *kicked = fake.kicks > 0;
        fake.kicks = 0;
    }
    int n = fake.count < max ? fake.count : max;
    memcpy(out, fake.edges, (size_t)n * sizeof *out);
    memmove(fake.edges, fake.edges + n, (size_t)(fake.count -= n) * sizeof *out);
    pthread_mutex_unlock(&fake.lock);
    return n;
}
static void fake_kick(weft__poller *p) {
    (void)p;
    pthread_mutex_lock(&fake.lock);
    fake.kicks++;
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.lock);
}
static void fake_edge(uint64_t key, uint32_t ready) {
    pthread_mutex_lock(&fake.lock);
    fake.edges[fake.count++] = (weft__edge){key, ready};
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.lock);
}
static const weft__backend fakes = {"fake", fake_open, fake_close, fake_add, fake_renew, fake_remove, fake_wait, fake_kick};

static atomic_int began, got;
static int read_one(void *arg) {
    (void)arg;
    char c;
    atomic_store(&began, 1);
    ssize_t n = weft_fd_read(fd[0], &c, 1, WEFT_FOREVER);
    atomic_store(&got, (int)n);
    return 0;
}

static int odd_edges(void *arg) {
    (void)arg;
    weft_stats s;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    atomic_store(&began, 0);
    atomic_store(&got, 0);
    atomic_store(&fake.added, 0); /* of the runtime before: opening the poller forgets what is in it */
    weft_scope scope;
    weft_scope_begin(&scope, NULL);
    CHECK_EQ(weft_spawn(&scope, read_one, NULL), 0);
    task_wait_parked(&began, 1);
    while (!fake.added) weft_yield();
    uint64_t key = fake.last_key;
    fake_edge(key + (UINT64_C(1) << 32), WEFT_READY_READ); /* of another generation */
    fake_edge(3999 << 8, WEFT_READY_READ);                 /* of a number that is not known */
    fake_edge(key, WEFT_READY_WRITE);                      /* for the other side */
    fake_edge(key, WEFT_READY_READ);                       /* for nothing: it looks, and waits again */
    do {
        CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
        weft_stats_get(&s);
    } while (s.poll_events < 4 ||
             s.poll_stale < 1); /* they are counted when they were told, before anything is done about them */
    CHECK_EQ(s.poll_stale, 1);
    CHECK_EQ(atomic_load(&got), 0);
    CHECK_EQ(write(fd[1], "x", 1), 1);
    fake_edge(key, WEFT_READY_READ);
    CHECK_EQ(weft_scope_end(&scope), 0);
    CHECK_EQ(atomic_load(&got), 1);
    CHECK_EQ(fake.added, 1); /* once for all of it */
    CHECK_EQ(weft_fd_close(fd[0]), 0);
    close(fd[1]);
    return 0;
}
TEST(poll, edges_that_are_late_or_for_nothing_do_no_harm) {
    weft__backend_used = &fakes;
    run_each(odd_edges);
}

static int refused(void *arg) {
    (void)arg;
    char c;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    fake.fail_add = -ENOSPC; /* /proc/sys/fs/epoll/max_user_watches */
    CHECK_EQ(weft_fd_read(fd[0], &c, 1, WEFT_FOREVER), -ENOSPC);
    fake.fail_add = 0;
    CHECK_EQ(weft_fd_read(fd[0], &c, 1, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_fd_close(fd[0]), 0);
    close(fd[1]);
    return 0;
}
TEST(poll, a_descriptor_that_the_poller_refuses_is_an_error) {
    weft__backend_used = &fakes;
    run_each(refused);
}

/* ---- selects ---- */

static weft_chan *never;
static int select_one(void *arg) {
    (void)arg;
    int x;
    atomic_store(&began, 1);
    int r = weft_select(WEFT_FOREVER, weft_on_recv(never, &x, NULL), weft_on_fd(fd[0], WEFT_READABLE));
    atomic_store(&got, r);
    return 0;
}

/* So many edges have come, so many of them of other generations, and whoever they have woken has run. */
static void until_polled(uint64_t edges, uint64_t stale) {
    weft_stats s;
    do {
        CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
        weft_stats_get(&s);
    } while (s.poll_events < edges || s.poll_stale < stale);
    CHECK_EQ(s.poll_stale, stale);
    weft_yield();
}

static int odd_edges_for_a_select(void *arg) {
    (void)arg;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    never = weft_chan_new(sizeof(int), 0);
    atomic_store(&began, 0);
    atomic_store(&got, -1);
    weft_scope scope;
    weft_scope_begin(&scope, NULL);
    CHECK_EQ(weft_spawn(&scope, select_one, NULL), 0);
    task_wait_parked(&began, 1);
    while (!fake.added) weft_yield();
    uint64_t key = fake.last_key;
    char x;
    CHECK_EQ(write(fd[1], "x", 1), 1);
    fake_edge(key + (UINT64_C(1) << 32), WEFT_READY_READ); /* it is ready now, but these are not its edges */
    fake_edge(key - (UINT64_C(1) << 32), WEFT_READY_READ);
    until_polled(2, 2);
    CHECK_EQ(atomic_load(&got), -1); /* so nobody has looked */
    CHECK_EQ(read(fd[0], &x, 1), 1);
    fake_edge(key, WEFT_READY_WRITE); /* for another event: it looks, and waits again */
    fake_edge(key, WEFT_READY_READ);  /* for nothing: likewise */
    until_polled(4, 2);
    CHECK_EQ(atomic_load(&got), -1);
    CHECK_EQ(write(fd[1], "x", 1), 1);
    fake_edge(key, WEFT_READY_READ);
    CHECK_EQ(weft_scope_end(&scope), 0);
    CHECK_EQ(atomic_load(&got), 1);
    CHECK_EQ(weft_fd_close(fd[0]), 0);
    close(fd[1]);
    weft_chan_unref(never);
    return 0;
}
TEST(poll, edges_of_other_generations_do_not_wake_a_select) {
    weft__backend_used = &fakes;
    CHECK_EQ(run_on(1, odd_edges_for_a_select, NULL), 0); /* one worker: it is parked before the edges come */
}

/* ---- one listener ---- */

/* epoll, and who sleeps in it. */
static atomic_int sleepers, most_sleepers, sleeper;
static int watched_wait(weft__poller *p, weft__edge *out, int max, int64_t until, bool *kicked) {
    if (until == WEFT_POLL_NOW) return weft__epoll.wait(p, out, max, until, kicked);
    atomic_store(&sleeper, gettid());
    int n = atomic_fetch_add(&sleepers, 1) + 1;
    if (n > atomic_load(&most_sleepers)) atomic_store(&most_sleepers, n);
    n = weft__epoll.wait(p, out, max, until, kicked);
    atomic_fetch_sub(&sleepers, 1);
    return n;
}

static weft_worker *attached; /* written by weft_thread_attach; read atomically */
static atomic_int attached_tid;
static void *attach(void *arg) {
    atomic_store(&attached_tid, gettid());
    CHECK_EQ(weft_thread_attach(&attached), 0);
    return arg;
}
static bool is_attached(void *arg) {
    (void)arg;
    return __atomic_load_n(&attached, __ATOMIC_ACQUIRE) != NULL;
}
static bool somebody_listens(void *arg) {
    (void)arg;
    return weft__idle_all() && atomic_load(&sleepers);
}
static void note(void *called) { atomic_store((atomic_int *)called, 1); }

/* The sentry runs a timer, and the last to sleep takes its place, who has not had a slot yet; when there is something to listen for it
 * listens; and is released. Whoever gets its memory is no listener, and the one that listens then stays the only one. True: it was like that. */
static bool release_a_listener(void) {
    weft_config cfg = {.workers = 2};
    pthread_t t;
    weft_timer timer = {0};
    atomic_int called = 0;
    __atomic_store_n(&attached, NULL, __ATOMIC_RELAXED);
    CHECK_EQ(weft_start(&cfg), 0);
    usleep(10000);
    CHECK_EQ(pthread_create(&t, NULL, attach, NULL), 0);
    test_until(is_attached, NULL);
    usleep(10000);
    CHECK_EQ(weft_timer_start(&timer, weft_after(10 * WEFT_MS), 0, note, &called), 0);
    thread_wait(&called, 1);
    CHECK_EQ(weft_timer_stop_wait(&timer), 0);
    usleep(10000);
    CHECK_EQ(weft_fd_wait(fd[0], WEFT_WRITABLE, WEFT_FOREVER), WEFT_WRITABLE);
    test_until(somebody_listens, NULL);
    bool listened = atomic_load(&sleeper) == atomic_load(&attached_tid);
    weft_worker_release(attached);
    pthread_join(t, NULL);
    test_until(somebody_listens, NULL);
    weft__slot *s = weft__idle_slot_take(NULL);
    CHECK(s != NULL);
    CHECK_EQ(weft__worker_start(s, false), 0); /* in the memory of the last to leave */
    usleep(10000);
    test_until(somebody_listens, NULL);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    return listened;
}

TEST(poll, the_next_worker_in_the_memory_of_a_listener_is_none) {
    weft__backend counting = weft__epoll;
    counting.wait = watched_wait;
    weft__backend_used = &counting;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    for (int i = 0; i < 50 && !release_a_listener(); i++) continue;
    CHECK_EQ(atomic_load(&most_sleepers), 1);
    close(fd[0]);
    close(fd[1]);
}
