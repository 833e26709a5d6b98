/* SPDX-License-Identifier: MIT */
/* Selects with descriptors among their cases, under races: readiness, channels, closing, cancelling and deadlines at once. What a wait was claimed for happens once. */
#include <sys/socket.h>
#include <unistd.h>

#include "stress/actor.h"

static void open_pair(int fd[2]) { open_far_pair(SOCK_STREAM, fd); }

/* ---- everything at once: nothing is lost, nothing comes twice ---- */

enum { SELECTORS = 6, SENDERS = 3, TAKERS = 3, SOCKETS = 3 };

static struct {
    weft_chan *in, *out;
    int fd[SOCKETS][2];
    uint64_t seed;
    long rounds;
    atomic_long sent, sent_sum, got, got_sum;       /* over `in`, by senders and selectors */
    atomic_long given, given_sum, taken, taken_sum; /* over `out`, by selectors and takers */
    atomic_long written, read;                      /* bytes */
    atomic_int writing;
} all;

/* What the select said can be read may be gone: another one was faster. */
static void read_some(int fd) {
    char buf[16];
    ssize_t n = weft_fd_read(fd, buf, sizeof buf, WEFT_POLL);
    CHECK_MSG(n > 0 || n == WEFT_EAGAIN, "a read gave %zd", n);
    if (n > 0) atomic_fetch_add(&all.read, n);
}

static int select_all(void *arg) {
    int who = (int)(intptr_t)arg;
    uint64_t rnd = actor_seed(all.seed, who);
    for (long mine = 1;; mine++) {
        long got = 0;
        bool open = true;
        int a = (int)test_below(&rnd, SOCKETS), b = (int)test_below(&rnd, SOCKETS);
        weft_case k[] = {weft_on_recv(all.in, &got, &open), weft_on_send(test_below(&rnd, 2) ? all.out : NULL, &mine),
                         weft_on_fd(all.fd[a][0], WEFT_READABLE),
                         weft_on_fd(test_below(&rnd, 2) ? all.fd[b][0] : -1, WEFT_READABLE)};
        int r = weft_selectv(k, COUNT(k), random_deadline(&rnd));
        if (r == 0 && !open) return 0;
        if (r == 0) {
            atomic_fetch_add(&all.got, 1);
            atomic_fetch_add(&all.got_sum, got);
        } else if (r == 1) {
            atomic_fetch_add(&all.given, 1);
            atomic_fetch_add(&all.given_sum, mine);
        } else if (r > 1) {
            read_some(k[r].fd);
        } else {
            CHECK_MSG(r == WEFT_EAGAIN || r == WEFT_ETIMEDOUT, "a select gave %d", r);
        }
        if (r != 0) CHECK_EQ(got, 0);
        random_pause(&rnd);
    }
}
static void *select_in_thread(void *arg) { return as_arg(select_all(arg)); }

static int send_all(void *arg) {
    uint64_t rnd = actor_seed(all.seed, (int)(intptr_t)arg);
    for (long i = 1; i <= all.rounds; i++) {
        if (weft_chan_send(all.in, &i, random_deadline(&rnd)) == 0) {
            atomic_fetch_add(&all.sent, 1);
            atomic_fetch_add(&all.sent_sum, i);
        }
        if (test_below(&rnd, 2)) { /* not for ever: those who wait for ever may all wait for other sockets */
            ssize_t n = weft_fd_write(all.fd[test_below(&rnd, SOCKETS)][1], "abc", 3, WEFT_POLL);
            if (n > 0) atomic_fetch_add(&all.written, n);
        }
        random_pause(&rnd);
    }
    if (atomic_fetch_sub(&all.writing, 1) == 1) CHECK_EQ(weft_chan_close(all.in), 0);
    return 0;
}

static int take_all(void *arg) {
    uint64_t rnd = actor_seed(all.seed, (int)(intptr_t)arg);
    for (;;) {
        long v;
        int r = weft_chan_recv(all.out, &v, random_deadline(&rnd));
        if (r == WEFT_ECLOSED) return 0;
        if (r == 0) {
            atomic_fetch_add(&all.taken, 1);
            atomic_fetch_add(&all.taken_sum, v);
        }
        random_pause(&rnd);
    }
}

/* What nobody has read in the end. */
static long left_over(void) {
    long n = 0;
    char buf[256];
    for (int i = 0; i < SOCKETS; i++)
        for (ssize_t r; (r = weft_fd_read(all.fd[i][0], buf, sizeof buf, WEFT_POLL)) > 0;) n += r;
    return n;
}

static int everything(void *arg) {
    (void)arg;
    weft_scope takers, others;
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, select_in_thread, as_arg(99)), 0);
    weft_scope_begin(&takers, NULL);
    for (int i = 0; i < TAKERS; i++) CHECK_EQ(weft_spawn(&takers, take_all, as_arg(i)), 0);
    weft_scope_begin(&others, NULL);
    for (int i = 0; i < SELECTORS; i++) CHECK_EQ(weft_spawn(&others, select_all, as_arg(10 + i)), 0);
    for (int i = 0; i < SENDERS; i++) CHECK_EQ(weft_spawn(&others, send_all, as_arg(20 + i)), 0);
    CHECK_EQ(weft_scope_end(&others), 0);
    weft_block_enter();
    CHECK_EQ(pthread_join(thread, NULL), 0);
    weft_block_exit();
    CHECK_EQ(weft_chan_close(all.out), 0);
    CHECK_EQ(weft_scope_end(&takers), 0);
    CHECK_EQ(atomic_load(&all.got), atomic_load(&all.sent));
    CHECK_EQ(atomic_load(&all.got_sum), atomic_load(&all.sent_sum));
    CHECK_EQ(atomic_load(&all.taken), atomic_load(&all.given));
    CHECK_EQ(atomic_load(&all.taken_sum), atomic_load(&all.given_sum));
    CHECK_EQ(atomic_load(&all.read) + left_over(), atomic_load(&all.written));
    return 0;
}

static void check_everything(int workers) {
    int fds = test_fds();
    weft_config cfg = {.workers = workers};
    memset(&all, 0, sizeof all);
    all.in = weft_chan_new(sizeof(long), 0);
    all.out = weft_chan_new(sizeof(long), workers % 2);
    all.seed = test_seed();
    all.rounds = test_scale(6000, 60);
    all.writing = SENDERS;
    for (int i = 0; i < SOCKETS; i++) open_pair(all.fd[i]);
    CHECK_EQ(weft_run(everything, NULL, &cfg), 0);
    for (int i = 0; i < SOCKETS; i++) {
        close(all.fd[i][0]);
        close(all.fd[i][1]);
    }
    weft_chan_unref(all.in);
    weft_chan_unref(all.out);
    test_wait_fds(fds);
}
TEST_T(select_fd_stress, each_claim_counts_once_1, 120) { check_everything(1); }
TEST_T(select_fd_stress, each_claim_counts_once_2, 120) { check_everything(2); }
TEST_T(select_fd_stress, each_claim_counts_once_4, 120) { check_everything(4); }
TEST_T(select_fd_stress, each_claim_counts_once_8, 120) { check_everything(8); }

/* ---- closing, with edges that are for nothing, and the number used again ---- */

static struct {
    int fd;
    weft_chan *silent;
    atomic_int ended;
} shut;

/* Nothing can ever be read there; at the descriptor that has the number afterwards something can. */
static int select_until_closed(void *arg) {
    (void)arg;
    int r = weft_select(WEFT_FOREVER, weft_on_fd(shut.fd, WEFT_READABLE), weft_on_recv(shut.silent, NULL, NULL),
                        weft_on_fd(shut.fd, WEFT_READABLE));
    CHECK_MSG(r == WEFT_ECLOSED || r == -EBADF, "a select gave %d", r);
    atomic_fetch_add(&shut.ended, 1);
    return 0;
}
static bool all_wait(void *arg) {
    (void)arg;
    weft_chan_stats s;
    weft_chan_stats_get(shut.silent, &s);
    return s.recv_waiting == 4;
}

/* Room to write comes and goes: edges that those who want to read are woken by. */
static void make_edges(int fd[2]) {
    static const char many[1 << 14];
    char buf[1 << 14];
    while (send(fd[0], many, sizeof many, MSG_DONTWAIT) > 0) continue;
    while (recv(fd[1], buf, sizeof buf, MSG_DONTWAIT) > 0) continue;
}

static int close_race(void *arg) {
    uint64_t rnd = test_random();
    CHECK_EQ(weft_fd_wait(1, WEFT_WRITABLE, WEFT_POLL) < 0, 0); /* from here on there is a poller, which takes no free number */
    shut.silent = weft_chan_new(0, 0);
    for (long i = (intptr_t)arg; i > 0; i--) {
        int first[2], second[2];
        open_pair(first);
        shut.fd = first[0];
        bool again = test_below(&rnd, 2); /* the number is used again, when all of them wait */
        atomic_store(&shut.ended, 0);
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int k = 0; k < 4; k++) CHECK_EQ(weft_spawn(&s, select_until_closed, NULL), 0);
        for (uint64_t k = test_below(&rnd, 8); k; k--) weft_yield();
        if (again) test_task_until(all_wait, NULL);
        if (test_below(&rnd, 2)) make_edges(first);
        CHECK_EQ(weft_fd_close(first[0]), 0);
        if (again) {
            open_pair(second); /* the same number, mostly */
            if (test_below(&rnd, 2)) CHECK_EQ(weft_fd_wait(second[0], WEFT_WRITABLE, WEFT_FOREVER), WEFT_WRITABLE);
            CHECK_EQ(write(second[1], "x", 1), 1);
        }
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(atomic_load(&shut.ended), 4);
        CHECK_EQ(weft_fd_close(first[1]), 0);
        if (again) CHECK_EQ(weft_fd_close(second[0]) | weft_fd_close(second[1]), 0);
    }
    weft_chan_unref(shut.silent);
    return 0;
}
static void check_close(int workers) { run_and_close_all(workers, close_race, test_scale(5000, 50)); }
TEST_T(select_fd_stress, closing_ends_every_select_1, 120) { check_close(1); }
TEST_T(select_fd_stress, closing_ends_every_select_2, 120) { check_close(2); }
TEST_T(select_fd_stress, closing_ends_every_select_4, 120) { check_close(4); }
TEST_T(select_fd_stress, closing_ends_every_select_8, 120) { check_close(8); }

/* ---- one select, and all that can end it at the same time ---- */

typedef struct {
    int fd[2], result, value, sent;
    weft_chan *c;
    weft_task *waiter;
    bool shield;
} duel;

static int select_once(void *arg) {
    duel *d = arg;
    if (d->shield) weft_shield_begin(WEFT_FOREVER);
    d->result = weft_select(WEFT_FOREVER, weft_on_recv(d->c, &d->value, NULL), weft_on_fd(d->fd[0], WEFT_READABLE));
    if (d->shield) weft_shield_end();
    return 0;
}
static int send_once(void *arg) {
    duel *d = arg;
    int v = 5;
    d->sent = weft_chan_send(d->c, &v, weft_after(20 * WEFT_US));
    return 0;
}
static int write_once(void *arg) {
    duel *d = arg;
    CHECK_EQ(write(d->fd[1], "x", 1), 1);
    return 0;
}
static int cancel_once(void *arg) {
    duel *d = arg;
    weft_task_cancel(d->waiter);
    return 0;
}

static int duels(void *arg) {
    uint64_t rnd = test_random();
    for (long i = (intptr_t)arg; i > 0; i--) {
        duel d = {.value = -1, .c = weft_chan_new(sizeof(int), 0), .shield = test_below(&rnd, 4) == 0};
        static weft_fn *const enemies[] = {send_once, write_once, cancel_once};
        uint64_t first = test_below(&rnd, 3);
        char c;
        open_pair(d.fd);
        CHECK_EQ(weft_task_start(&d.waiter, select_once, &d, NULL), 0);
        for (uint64_t k = test_below(&rnd, 3); k; k--) weft_yield();
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (uint64_t k = 0; k < 3; k++) {
            CHECK_EQ(weft_spawn(&s, enemies[(first + k) % 3], &d), 0);
            if (test_below(&rnd, 2)) weft_yield();
        }
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(weft_task_join(d.waiter, NULL, WEFT_FOREVER), 0);
        CHECK(d.result == 0 || d.result == 1 || (d.result == WEFT_ECANCELED && !d.shield));
        CHECK_EQ(d.result == 0, d.sent == 0); /* the element was handed over, or is still the sender's */
        CHECK_EQ(d.value, d.result == 0 ? 5 : -1);
        CHECK_EQ(weft_fd_read(d.fd[0], &c, 1, WEFT_POLL), 1); /* the select has read nothing */
        CHECK_EQ(weft_fd_close(d.fd[0]), 0);
        CHECK_EQ(weft_fd_close(d.fd[1]), 0);
        weft_chan_unref(d.c);
    }
    return 0;
}
static void check_duels(int workers) { run_and_close_all(workers, duels, test_scale(10000, 60)); }
TEST_T(select_fd_stress, one_of_several_ends_the_wait_1, 120) { check_duels(1); }
TEST_T(select_fd_stress, one_of_several_ends_the_wait_2, 120) { check_duels(2); }
TEST_T(select_fd_stress, one_of_several_ends_the_wait_4, 120) { check_duels(4); }
TEST_T(select_fd_stress, one_of_several_ends_the_wait_8, 120) { check_duels(8); }
