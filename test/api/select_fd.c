/* SPDX-License-Identifier: MIT */
/* Select: descriptors as cases, beside channels, tasks, deadlines and cancellation. */
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/ints.h"

static int pair[2];
static atomic_int started;

static void open_pair(int fd[2]) { open_far_pair(SOCK_STREAM, fd); }
static void close_pair(int fd[2]) {
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_fd_close(fd[i]), 0);
}
static void put_byte(int fd) { CHECK_EQ(write(fd, "x", 1), 1); }
static void take_byte(int fd) {
    char c;
    CHECK_EQ(read(fd, &c, 1), 1);
}
/* Until no more goes in. */
static void fill(int fd) {
    static char many[4096];
    while (send(fd, many, sizeof many, MSG_DONTWAIT) > 0) continue;
}
static void drain(int fd) {
    char many[4096];
    while (recv(fd, many, sizeof many, MSG_DONTWAIT) > 0) continue;
}

/* ---- without waiting ---- */

static int ready_ones(void *arg) {
    (void)arg;
    int a[2], b[2], x = 0, r = -1;
    open_pair(a);
    open_pair(b);
    weft_chan *c = new_chan(1);
    weft_task *t;
    CHECK_EQ(weft_task_start(&t, wait_for_ever, NULL, NULL), 0);
    weft_case k[] = {weft_on_fd(a[0], WEFT_READABLE), weft_on_fd(b[0], WEFT_READABLE), weft_on_recv(c, &x, NULL),
                     weft_on_task(t, &r)};
    CHECK_EQ(weft_selectv(k, COUNT(k), WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_selectv(k, COUNT(k), weft_at(1)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_selectv(k, COUNT(k), weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    put_byte(b[1]);
    CHECK_EQ(weft_selectv(k, COUNT(k), WEFT_POLL), 1);
    CHECK_EQ(weft_selectv(k, COUNT(k), weft_at(1)), 1); /* a deadline in the past still tries */
    CHECK_EQ(weft_selectv(k, COUNT(k), WEFT_FOREVER), 1);
    take_byte(b[0]); /* nothing was read */
    CHECK_EQ(weft_selectv(k, COUNT(k), WEFT_POLL), WEFT_EAGAIN);
    put(c, 7);
    CHECK_EQ(weft_selectv(k, COUNT(k), WEFT_FOREVER), 2);
    CHECK_EQ(x, 7);
    weft_task_cancel(t);
    CHECK_EQ(weft_selectv(k, COUNT(k), WEFT_FOREVER), 3);
    CHECK_EQ(r, WEFT_ECANCELED);
    k[3] = weft_on_task(NULL, NULL);
    put_byte(a[1]);
    CHECK_EQ(weft_selectv(k, COUNT(k), WEFT_FOREVER), 0);
    weft_chan_unref(c);
    close_pair(a);
    close_pair(b);
    return 0;
}
TEST(select_fd, a_ready_descriptor_is_a_case) { run_each(ready_ones); }

static int both_ways(void *arg) {
    (void)arg;
    int a[2];
    open_pair(a);
    weft_case k[] = {weft_on_fd(a[0], WEFT_READABLE), weft_on_fd(a[0], WEFT_WRITABLE)};
    CHECK_EQ(weft_selectv(k, 2, WEFT_FOREVER), 1);
    fill(a[0]);
    CHECK_EQ(weft_selectv(k, 2, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_selectv(k, 2, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_select(WEFT_POLL, weft_on_fd(a[0], WEFT_READABLE | WEFT_WRITABLE)), WEFT_EAGAIN);
    put_byte(a[1]);
    CHECK_EQ(weft_selectv(k, 2, WEFT_FOREVER), 0);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_fd(a[0], WEFT_READABLE | WEFT_WRITABLE)), 0);
    take_byte(a[0]);
    drain(a[1]);
    CHECK_EQ(weft_selectv(k, 2, WEFT_FOREVER), 1);
    CHECK_EQ(shutdown(a[1], SHUT_WR), 0);
    fill(a[0]);
    CHECK_EQ(weft_selectv(k, 2, WEFT_FOREVER), 0); /* the end is something to be read */
    close_pair(a);
    return 0;
}
TEST(select_fd, the_same_one_may_be_waited_for_in_both_directions) { run_each(both_ways); }

/* Which of those that are ready is chance: each of them is taken now and then. */
static int by_chance(void *arg) {
    (void)arg;
    int a[2], seen[4] = {0}, x;
    open_pair(a);
    put_byte(a[1]);
    weft_chan *c = new_chan(1), *d = new_chan(1);
    do {
        if (!weft_chan_len(c)) put(c, 1);
        if (weft_chan_len(d)) take(d);
        int v = 2, i = weft_select(WEFT_FOREVER, weft_on_fd(a[0], WEFT_READABLE), weft_on_recv(c, &x, NULL),
                                   weft_on_fd(a[0], WEFT_WRITABLE), weft_on_send(d, &v));
        CHECK_GE(i, 0);
        seen[i]++;
        CHECK_EQ(weft_chan_len(c), i != 1); /* exactly one was done */
        CHECK_EQ(weft_chan_len(d), i == 3);
    } while (!seen[0] || !seen[1] || !seen[2] || !seen[3]);
    weft_chan_unref(c);
    weft_chan_unref(d);
    close_pair(a);
    return 0;
}
TEST(select_fd, among_ready_cases_one_is_done_at_random) { run_each(by_chance); }

static int files(void *arg) {
    (void)arg;
    FILE *f = tmpfile();
    int never[2], event = eventfd(1, 0);
    open_pair(never);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_fd(never[0], WEFT_READABLE), weft_on_fd(fileno(f), WEFT_READABLE)), 1);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_fd(never[0], WEFT_READABLE), weft_on_fd(event, WEFT_READABLE)), 1);
    CHECK_EQ(weft_fd_close(event), 0);
    CHECK_EQ(weft_fd_close(dup(fileno(f))), 0);
    close_pair(never);
    fclose(f);
    return 0;
}
TEST(select_fd, files_are_always_ready) { run_each(files); }

static int wrong(void *arg) {
    (void)arg;
    int a[2], x = 0;
    open_pair(a);
    weft_chan *c = new_chan(1);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_fd(900, WEFT_READABLE), weft_on_recv(c, &x, NULL)), -EBADF);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_fd(-5, WEFT_READABLE)), -EBADF); /* an error taken for a descriptor */
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_fd(1 << 30, WEFT_READABLE)), WEFT_ELIMIT);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_fd(a[0], 64)), WEFT_EINVAL);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_fd(a[0], WEFT_READABLE | WEFT_HANGUP)), WEFT_EINVAL);
    weft_case k[] = {weft_on_fd(a[1], WEFT_WRITABLE), weft_on_fd(a[0], WEFT_READABLE)};
    k[0].op = 99;
    CHECK_EQ(weft_selectv(k, 2, WEFT_FOREVER), WEFT_EINVAL);
    k[0] = weft_on_fd(-1, WEFT_READABLE); /* disabled */
    CHECK_EQ(weft_selectv(k, 2, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_selectv(k, 2, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    k[1] = weft_on_fd(a[0], 0);
    CHECK_EQ(weft_selectv(k, 2, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    put(c, 3);
    CHECK_EQ(weft_select(WEFT_FOREVER, k[0], k[1], weft_on_recv(c, &x, NULL)), 2);
    CHECK_EQ(close(a[0]), 0); /* behind our back, but known */
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_fd(a[0], WEFT_READABLE)), -EBADF);
    CHECK_EQ(weft_fd_close(a[0]), -EBADF);
    CHECK_EQ(weft_fd_close(a[1]), 0);
    weft_chan_unref(c);
    return 0;
}
TEST(select_fd, what_is_no_descriptor_is_refused_and_none_is_left_out) { run_each(wrong); }

/* ---- waiting ---- */

typedef struct {
    weft_chan *c;
    weft_task *t;
    int value, ended, deadline_passed;
} picture;

/* Waits for everything at once; the result of the select. */
static int wait_for_all(void *arg) {
    picture *p = arg;
    atomic_fetch_add(&started, 1);
    return weft_select(p->deadline_passed ? weft_after(WEFT_MS) : WEFT_FOREVER, weft_on_recv(p->c, &p->value, NULL),
                       weft_on_fd(pair[0], WEFT_READABLE), weft_on_task(p->t, &p->ended), weft_on_fd(pair[0], WEFT_WRITABLE));
}

/* 0 to 3: the case happens; 4: cancelled; 5: the deadline passes; 6: closed. */
static int each_end(void *arg) {
    (void)arg;
    static const int expected[] = {0, 1, 2, 3, WEFT_ECANCELED, WEFT_ETIMEDOUT, WEFT_ECLOSED};
    for (int how = 0; how < (int)COUNT(expected); how++) {
        picture p = {.c = new_chan(0), .value = -1, .ended = -1, .deadline_passed = how == 5};
        weft_task *waiter;
        int result = 99, v = 11;
        open_pair(pair);
        fill(pair[0]);
        atomic_store(&started, 0);
        CHECK_EQ(weft_task_start(&p.t, wait_for_ever, NULL, NULL), 0);
        CHECK_EQ(weft_task_start(&waiter, wait_for_all, &p, NULL), 0);
        task_wait_parked(&started, 1);
        if (how == 0) CHECK_EQ(weft_chan_send(p.c, &v, WEFT_FOREVER), 0);
        if (how == 1) put_byte(pair[1]);
        if (how == 2) weft_task_cancel(p.t);
        if (how == 3) drain(pair[1]);
        if (how == 4) weft_task_cancel(waiter);
        if (how == 6) CHECK_EQ(weft_fd_close(pair[0]), 0);
        CHECK_EQ(weft_task_join(waiter, &result, WEFT_FOREVER), 0);
        CHECK(result == expected[how] || (how == 6 && result == -EBADF)); /* -EBADF: it had not begun */
        CHECK_EQ(p.value, how == 0 ? 11 : -1);
        CHECK_EQ(p.ended, how == 2 ? WEFT_ECANCELED : -1);
        if (how != 0) CHECK_EQ(weft_chan_send(p.c, &v, WEFT_POLL), WEFT_EAGAIN); /* nobody is left on a queue */
        if (how != 2) {
            weft_task_cancel(p.t);
            CHECK_EQ(weft_task_join(p.t, NULL, WEFT_FOREVER), 0);
        }
        weft_chan_unref(p.c);
        if (how != 6) CHECK_EQ(weft_fd_close(pair[0]), 0);
        CHECK_EQ(weft_fd_close(pair[1]), 0);
    }
    return 0;
}
TEST(select_fd, a_wait_ends_by_whatever_comes_first) {
    int fds = test_fds();
    run_each(each_end);
    test_wait_fds(fds);
}

/* What is known of a descriptor is that it is not ready, and the edge that says otherwise has not been told yet: a look must ask. */
static int known_not_ready(void *arg) {
    (void)arg;
    char c;
    open_pair(pair);
    for (int i = 0; i < 50; i++) {
        CHECK_EQ(weft_fd_read(pair[0], &c, 1, WEFT_POLL), WEFT_EAGAIN);
        put_byte(pair[1]);
        CHECK_EQ(weft_select(i % 2 ? WEFT_POLL : WEFT_FOREVER, weft_on_fd(pair[0], WEFT_READABLE)), 0);
        CHECK_EQ(weft_fd_read(pair[0], &c, 1, WEFT_FOREVER), 1);
    }
    close_pair(pair);
    return 0;
}
TEST(select_fd, what_is_known_does_not_hide_what_is_new) { run_each(known_not_ready); }

static int wait_readable(void *arg) {
    atomic_fetch_add(&started, 1);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_fd(pair[0], WEFT_READABLE)), (int)(intptr_t)arg);
    return 0;
}

/* Everybody who watches is told. */
static int all_watchers(void *arg) {
    (void)arg;
    open_pair(pair);
    atomic_store(&started, 0);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 8; i++) CHECK_EQ(weft_spawn(&s, wait_readable, as_arg(0)), 0);
    task_wait_parked(&started, 8);
    put_byte(pair[1]);
    CHECK_EQ(weft_scope_end(&s), 0);
    close_pair(pair);
    return 0;
}
TEST(select_fd, an_edge_is_told_to_all_who_watch) { run_each(all_watchers); }

/* The number is used again at once, by something that can be read: it is not what was waited for. With one worker all of them wait by then. */
static int closed_and_used_again(void *arg) {
    (void)arg;
    for (int i = 0; i < 20; i++) {
        int next[2];
        open_pair(pair);
        atomic_store(&started, 0);
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int k = 0; k < 4; k++) CHECK_EQ(weft_spawn(&s, wait_readable, as_arg(WEFT_ECLOSED)), 0);
        task_wait_parked(&started, 4);
        CHECK_EQ(weft_fd_close(pair[0]), 0);
        open_pair(next);
        CHECK_EQ(next[0], pair[0]);
        put_byte(next[1]);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_fd(next[0], WEFT_READABLE)), 0);
        close_pair(next);
        CHECK_EQ(weft_fd_close(pair[1]), 0);
    }
    return 0;
}
TEST(select_fd, a_number_used_again_is_another_descriptor) { CHECK_EQ(run_on(1, closed_and_used_again, NULL), 0); }

/* A reader has the turn; a select takes none, and both are told. */
static int read_one(void *arg) {
    char c;
    (void)arg;
    atomic_fetch_add(&started, 1);
    CHECK_EQ(weft_fd_read(pair[0], &c, 1, WEFT_FOREVER), 1);
    return 0;
}
static int beside_a_reader(void *arg) {
    (void)arg;
    open_pair(pair);
    atomic_store(&started, 0);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, read_one, NULL), 0);
    CHECK_EQ(weft_spawn(&s, wait_readable, as_arg(0)), 0);
    task_wait_parked(&started, 2);
    put_byte(pair[1]);
    put_byte(pair[1]); /* one is left for the select to see, whoever is first */
    CHECK_EQ(weft_scope_end(&s), 0);
    close_pair(pair);
    return 0;
}
TEST(select_fd, a_select_takes_no_turn) { run_each(beside_a_reader); }

/* ---- many ---- */

enum { MANY = 40 };
static int many_cases(void *arg) {
    (void)arg;
    int fd[MANY][2], v[MANY];
    weft_chan *c[MANY];
    weft_case k[2 * MANY];
    for (int i = 0; i < MANY; i++) {
        open_pair(fd[i]);
        c[i] = new_chan(1);
        k[2 * i] = weft_on_fd(fd[i][0], WEFT_READABLE);
        k[2 * i + 1] = weft_on_recv(c[i], &v[i], NULL);
    }
    CHECK_EQ(weft_selectv(k, COUNT(k), WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_selectv(k, COUNT(k), weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    for (int i = 0; i < MANY; i++) {
        put_byte(fd[i][1]);
        CHECK_EQ(weft_selectv(k, COUNT(k), WEFT_FOREVER), 2 * i);
        take_byte(fd[i][0]);
        put(c[i], i);
        CHECK_EQ(weft_selectv(k, COUNT(k), WEFT_FOREVER), 2 * i + 1);
        CHECK_EQ(v[i], i);
    }
    for (int i = 0; i < MANY; i++) {
        close_pair(fd[i]);
        weft_chan_unref(c[i]);
    }
    return 0;
}
TEST(select_fd, more_cases_than_fit_on_the_stack) { run_each(many_cases); }

/* Two tasks play to and fro, each waiting for its socket or the end. */
typedef struct {
    int fd;
    weft_chan *over;
    bool first;
    int played;
} player;
static int play(void *arg) {
    player *p = arg;
    char c;
    if (p->first) put_byte(p->fd);
    for (;;) {
        int i = weft_select(WEFT_FOREVER, weft_on_fd(p->fd, WEFT_READABLE), weft_on_recv(p->over, NULL, &(bool){false}));
        if (i != 0) return i == 1 ? 0 : i;
        CHECK_EQ(weft_fd_read(p->fd, &c, 1, WEFT_FOREVER), 1);
        if (++p->played == 1000 && p->first) weft_chan_close(p->over);
        CHECK_EQ(weft_fd_write(p->fd, &c, 1, WEFT_FOREVER), 1);
    }
}
static int game(void *arg) {
    (void)arg;
    int fd[2];
    open_pair(fd);
    player p[2] = {{.fd = fd[0], .over = weft_chan_new(0, 0), .first = true}, {.fd = fd[1]}};
    p[1].over = p[0].over;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_spawn(&s, play, &p[i]), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_GE(p[0].played, 1000);
    weft_chan_unref(p[0].over);
    close_pair(fd);
    return 0;
}
TEST(select_fd, a_server_waits_for_its_socket_or_the_end) { run_each(game); }

/* ---- plain threads ---- */

static int thread_result;
static void *thread_waits(void *arg) {
    atomic_fetch_add(&started, 1);
    thread_result = weft_select(WEFT_FOREVER, weft_on_recv(arg, NULL, &(bool){false}), weft_on_fd(pair[0], WEFT_READABLE));
    return NULL;
}
static int thread_until(weft_chan *c, void (*end)(void)) {
    pthread_t t;
    atomic_store(&started, 0);
    CHECK_EQ(pthread_create(&t, NULL, thread_waits, c), 0);
    thread_wait(&started, 1);
    sched_yield();
    if (end)
        end();
    else
        CHECK_EQ(weft_chan_close(c), 0);
    CHECK_EQ(pthread_join(t, NULL), 0);
    return thread_result;
}
static void end_by_byte(void) { put_byte(pair[1]); }
static void end_by_close(void) { CHECK_EQ(weft_fd_close(pair[0]), 0); }

TEST(select_fd, a_plain_thread_waits_too) {
    weft_chan *c = weft_chan_new(0, 0);
    CHECK_EQ(set_up(2), 0);
    CHECK_EQ(ready_ones(NULL), 0);
    CHECK_EQ(many_cases(NULL), 0);
    open_pair(pair);
    CHECK_EQ(thread_until(c, end_by_byte), 1);
    take_byte(pair[0]);
    int r = thread_until(c, end_by_close);
    CHECK(r == WEFT_ECLOSED || r == -EBADF); /* -EBADF: it had not begun */
    CHECK_EQ(weft_fd_close(pair[1]), 0);
    open_pair(pair);
    CHECK_EQ(thread_until(c, NULL), 0);
    close_pair(pair);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    weft_chan_unref(c);
}

TEST(select_fd, a_plain_thread_needs_no_runtime) {
    weft_chan *c = weft_chan_new(0, 0);
    CHECK_EQ(many_cases(NULL), 0);
    CHECK_EQ(both_ways(NULL), 0);
    CHECK_EQ(by_chance(NULL), 0);
    open_pair(pair);
    CHECK_EQ(thread_until(c, end_by_byte), 1);
    take_byte(pair[0]);
    CHECK_EQ(thread_until(c, NULL), 0);
    close_pair(pair);
    weft_chan_unref(c);
}

/* The runtime ends while a thread waits: it is told so, or (if it had not begun to wait) goes on without one. */
TEST(select_fd, a_plain_thread_survives_the_runtime) {
    weft_chan *c = weft_chan_new(0, 0);
    open_pair(pair);
    for (int i = 0; i < 20; i++) {
        pthread_t t;
        CHECK_EQ(set_up(2), 0);
        CHECK_EQ(weft_fd_wait(pair[0], WEFT_WRITABLE, WEFT_FOREVER), WEFT_WRITABLE);
        atomic_store(&started, 0);
        CHECK_EQ(pthread_create(&t, NULL, thread_waits, c), 0);
        thread_wait(&started, 1);
        for (int k = 0; k < i; k++) sched_yield();
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        put_byte(pair[1]);
        CHECK_EQ(pthread_join(t, NULL), 0);
        CHECK_MSG(thread_result == WEFT_ETERMINATED || thread_result == 1, "got %d", thread_result);
        take_byte(pair[0]);
    }
    close_pair(pair);
    weft_chan_unref(c);
}
