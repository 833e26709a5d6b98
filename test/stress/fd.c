/* SPDX-License-Identifier: MIT */
/* Descriptors under races: numbers that are used again, closing against those who wait, cancelling against readiness. */
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/common.h"

/* ---- the same number again and again ---- */

typedef struct {
    int fd[2];
    uint32_t mark;
} wire;

/* Reads the mark of its own pair, whatever was written to earlier pairs of the same numbers; then nothing. */
static int read_mark(void *arg) {
    wire *l = arg;
    uint32_t got = 0;
    CHECK_EQ(weft_fd_read(l->fd[0], &got, sizeof got, WEFT_FOREVER), sizeof got);
    CHECK_EQ(got, l->mark);
    return 0;
}

static int reuse(void *arg) {
    long rounds = (intptr_t)arg;
    uint64_t random = test_random();
    for (long i = 0; i < rounds; i++) {
        wire l = {.mark = (uint32_t)i};
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, l.fd), 0);
        weft_scope s;
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, read_mark, &l), 0);
        if (test_below(&random, 4)) weft_yield(); /* it waits, mostly */
        CHECK_EQ(weft_fd_write(l.fd[1], &l.mark, sizeof l.mark, WEFT_FOREVER), sizeof l.mark);
        CHECK_EQ(weft_scope_end(&s), 0);
        uint32_t stale = ~l.mark;
        if (test_below(&random, 2))
            CHECK_EQ(write(l.fd[1], &stale, sizeof stale), sizeof stale); /* an edge that nobody waits for */
        CHECK_EQ(weft_fd_close(l.fd[0]), 0);
        CHECK_EQ(weft_fd_close(l.fd[1]), 0);
        uint32_t none;
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, l.fd), 0); /* the same numbers, mostly */
        CHECK_EQ(weft_fd_read(l.fd[0], &none, sizeof none, WEFT_POLL), WEFT_EAGAIN);
        CHECK_EQ(weft_fd_close(l.fd[0]), 0);
        CHECK_EQ(weft_fd_close(l.fd[1]), 0);
    }
    return 0;
}

static void check_reuse(int workers, long rounds) { run_and_close_all(workers, reuse, rounds); }
TEST_T(fd_stress, a_number_used_again_gets_no_old_event_1, 120) { check_reuse(1, test_scale(100000, 500)); }
TEST_T(fd_stress, a_number_used_again_gets_no_old_event_2, 120) { check_reuse(2, test_scale(50000, 500)); }
TEST_T(fd_stress, a_number_used_again_gets_no_old_event_8, 120) { check_reuse(8, test_scale(20000, 200)); }

/* ---- many tasks, on numbers that go round among them ---- */

static int one_life(void *arg) {
    uint64_t random = (uint64_t)(uintptr_t)arg * 0x9e3779b97f4a7c15u + test_random();
    for (long i = test_scale(4000, 40); i > 0; i--) {
        wire l = {.mark = (uint32_t)test_random_from(&random)};
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, l.fd), 0);
        weft_scope s;
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, read_mark, &l), 0);
        for (uint64_t k = test_below(&random, 3); k; k--) weft_yield();
        CHECK_EQ(weft_fd_write(l.fd[1], &l.mark, sizeof l.mark, WEFT_FOREVER), sizeof l.mark);
        CHECK_EQ(weft_scope_end(&s), 0);
        uint64_t first = test_below(&random, 2);
        CHECK_EQ(weft_fd_close(l.fd[first]), 0);
        CHECK_EQ(weft_fd_close(l.fd[!first]), 0);
    }
    return 0;
}
static int many_lives(void *arg) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (intptr_t i = 0; i < (intptr_t)arg; i++) CHECK_EQ(weft_spawn(&s, one_life, as_arg(i + 1)), 0);
    return weft_scope_end(&s);
}
static void check_lives(int workers) { run_and_close_all(workers, many_lives, 8); }
TEST(fd_stress, numbers_go_round_among_tasks_2) { check_lives(2); }
TEST(fd_stress, numbers_go_round_among_tasks_4) { check_lives(4); }

/* ---- the same with numbers that other code closes ---- */

/* Ways to be rid of a descriptor. Each is followed by another task's use of the number. */
static void end_somehow(int fd, uint64_t way) {
    if (way == 0) CHECK_EQ(weft_fd_forget(fd), 0);
    if (way == 1)
        CHECK_EQ(weft_fd_close(fd), 0);
    else
        CHECK_EQ(close(fd), 0);
}
static void open_kind(wire *l, bool is_pipe) {
    if (is_pipe)
        CHECK_EQ(pipe(l->fd), 0);
    else
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, l->fd), 0);
}
static int select_mark(void *arg) {
    wire *l = arg;
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_fd(l->fd[0], WEFT_READABLE)), 0);
    return read_mark(arg);
}
static int adopt_mark(void *arg) {
    wire *l = arg;
    uint32_t got = 0;
    weft_conn *c;
    CHECK_EQ(weft_conn_adopt(&c, l->fd[0]), 0);
    CHECK_EQ(weft_conn_read_full(c, &got, sizeof got, NULL, WEFT_FOREVER), sizeof got);
    CHECK_EQ(got, l->mark);
    CHECK_EQ(weft_conn_release(c), l->fd[0]);
    return 0;
}

static int one_foreign_life(void *arg) {
    uint64_t random = (uint64_t)(uintptr_t)arg * 0x9e3779b97f4a7c15u + test_random();
    weft_fn *ways[] = {read_mark, select_mark, adopt_mark};
    for (long i = test_scale(4000, 40); i > 0; i--) {
        wire l = {.mark = (uint32_t)test_random_from(&random)};
        bool is_pipe = !test_below(&random, 3);
        weft_scope s;
        open_kind(&l, is_pipe);
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, ways[test_below(&random, is_pipe ? 2 : 3)], &l), 0);
        for (uint64_t k = test_below(&random, 3); k; k--) weft_yield();
        CHECK_EQ(weft_fd_write(l.fd[1], &l.mark, sizeof l.mark, WEFT_FOREVER), sizeof l.mark);
        CHECK_EQ(weft_scope_end(&s), 0);
        uint64_t first = test_below(&random, 2);
        end_somehow(l.fd[first], test_below(&random, 6));
        end_somehow(l.fd[!first], test_below(&random, 6));
    }
    return 0;
}
static int many_foreign_lives(void *arg) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (intptr_t i = 0; i < (intptr_t)arg; i++) CHECK_EQ(weft_spawn(&s, one_foreign_life, as_arg(i + 1)), 0);
    return weft_scope_end(&s);
}
TEST(fd_stress, numbers_that_other_code_closes_go_round_among_tasks_1) { run_and_close_all(1, many_foreign_lives, 8); }
TEST(fd_stress, numbers_that_other_code_closes_go_round_among_tasks_4) { run_and_close_all(4, many_foreign_lives, 8); }

/* ---- closing a number while another task finds out that it means another descriptor ---- */

static atomic_int about_to_wait;
static int wait_for_input(void *arg) {
    int fd = ((wire *)arg)->fd[0];
    atomic_store(&about_to_wait, 1);
    int r = weft_fd_wait(fd, WEFT_READABLE, WEFT_FOREVER);
    CHECK(r == WEFT_ECLOSED || r == -EBADF); /* the second: it came after the close */
    return 0;
}

static int close_replaced(void *arg) {
    uint64_t random = test_random();
    (void)arg;
    for (long i = test_scale(20000, 500); i > 0; i--) {
        wire l;
        weft_scope s;
        open_kind(&l, true);
        CHECK_EQ(weft_fd_wait(l.fd[0], WEFT_READABLE, weft_after(1)), WEFT_ETIMEDOUT); /* it is known now */
        CHECK_EQ(close(l.fd[0]) + close(l.fd[1]), 0);
        open_kind(&l, true); /* the same numbers */
        atomic_store(&about_to_wait, 0);
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, wait_for_input, &l), 0);
        while (!atomic_load(&about_to_wait)) weft_yield();
        for (uint64_t k = test_below(&random, 400); k; k--) atomic_thread_fence(memory_order_seq_cst);
        CHECK_EQ(weft_fd_close(l.fd[0]), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(close(l.fd[1]), 0);
    }
    return 0;
}
TEST(fd_stress, a_number_that_was_replaced_is_closed_for_all_2) { run_and_close_all(2, close_replaced, 0); }

/* ---- closing against waiters ---- */

typedef struct {
    int fd[2];
    atomic_int ended;
} victim;

static int read_until_closed(void *arg) {
    victim *v = arg;
    char buf[64];
    ssize_t n;
    do {
        n = weft_fd_read(v->fd[0], buf, sizeof buf, WEFT_FOREVER);
    } while (n > 0);
    CHECK_MSG(n == WEFT_ECLOSED || n == -EBADF, "a reader got %zd", n);
    atomic_fetch_add(&v->ended, 1);
    return 0;
}
static int write_until_closed(void *arg) {
    static char many[1 << 14];
    victim *v = arg;
    ssize_t n;
    do {
        n = weft_fd_write(v->fd[0], many, sizeof many, WEFT_FOREVER);
    } while (n > 0);
    CHECK_MSG(n == WEFT_ECLOSED || n == -EBADF || n == -EPIPE, "a writer got %zd", n);
    atomic_fetch_add(&v->ended, 1);
    return 0;
}
static int wait_until_closed(void *arg) {
    victim *v = arg;
    int n;
    do {
        n = weft_fd_wait(v->fd[0], WEFT_READABLE, WEFT_FOREVER);
    } while (n > 0 && (weft_yield(), 1));
    CHECK_MSG(n == WEFT_ECLOSED || n == -EBADF, "a watcher got %d", n);
    atomic_fetch_add(&v->ended, 1);
    return 0;
}

/* One after the other, so that the number is not used again while somebody may still come with it. */
static int close_race(void *arg) {
    uint64_t random = test_random();
    int64_t over = test_long_enough();
    CHECK_EQ(weft_fd_wait(1, WEFT_WRITABLE, WEFT_POLL) < 0, 0); /* from here on there is a poller, which takes no free number */
    for (long i = (intptr_t)arg; i > 0 && test_clock_ns() < over; i--) {
        victim v = {.fd = {-1, -1}};
        open_far_pair(SOCK_STREAM, v.fd);
        weft_scope s;
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, read_until_closed, &v), 0);
        CHECK_EQ(weft_spawn(&s, write_until_closed, &v), 0);
        CHECK_EQ(weft_spawn(&s, read_until_closed, &v), 0);
        CHECK_EQ(weft_spawn(&s, wait_until_closed, &v), 0);
        for (uint64_t k = test_below(&random, 6); k; k--) weft_yield();
        if (test_below(&random, 2)) CHECK_EQ(write(v.fd[1], "x", 1), 1); /* readiness, at the same time */
        CHECK_EQ(weft_fd_close(v.fd[0]), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(atomic_load(&v.ended), 4);
        CHECK_EQ(weft_fd_close(v.fd[1]), 0);
    }
    return 0;
}
static void check_close(int workers) { run_and_close_all(workers, close_race, test_scale(4000, 50)); }
TEST(fd_stress, closing_ends_every_wait_1) { check_close(1); }
TEST(fd_stress, closing_ends_every_wait_2) { check_close(2); }
TEST(fd_stress, closing_ends_every_wait_4) { check_close(4); }
TEST(fd_stress, closing_ends_every_wait_8) { check_close(8); }

/* ---- closing against those who come at that moment ---- */

static int write_bytes(void *arg) {
    ssize_t n;
    do {
        n = weft_fd_write(*(int *)arg, "x", 1, WEFT_POLL);
    } while (n == 1 || n == WEFT_EAGAIN);
    CHECK_MSG(n == WEFT_ECLOSED || n == -EBADF || n == -EPIPE, "a writer got %zd", n);
    return 0;
}

/* Whoever has looked the descriptor up just before it is closed makes no system call with its number any more, which may be another's by then. TSan tells
 * if somebody does. */
static int come_and_close(void *arg) {
    uint64_t random = test_random();
    int64_t over = test_long_enough(); /* those who come may have to lose their slots first: each time a turn of the kernel's */
    CHECK_EQ(weft_fd_wait(1, WEFT_WRITABLE, WEFT_POLL) < 0, 0); /* as above */
    for (long i = (intptr_t)arg; i > 0 && test_clock_ns() < over; i--) {
        int fd[2];
        open_far_pair(SOCK_DGRAM, fd);
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int k = 0; k < 3; k++) CHECK_EQ(weft_spawn(&s, write_bytes, &fd[0]), 0);
        for (uint64_t k = test_below(&random, 30); k; k--) weft_yield();
        CHECK_EQ(weft_fd_close(fd[0]), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(weft_fd_close(fd[1]), 0);
    }
    return 0;
}
static void check_come(int workers) { run_and_close_all(workers, come_and_close, test_scale(4000, 50)); }
TEST_T(fd_stress, who_comes_while_it_is_closed_does_not_use_the_number_2, 180) { check_come(2); }
TEST_T(fd_stress, who_comes_while_it_is_closed_does_not_use_the_number_4, 180) { check_come(4); }

/* ---- cancelling, and deadlines, against readiness ---- */

typedef struct {
    int fd;
    long got;
    weft_deadline deadline;
} taker;

static int take_one(void *arg) {
    taker *t = arg;
    char c;
    ssize_t n = weft_fd_read(t->fd, &c, 1, t->deadline);
    if (n == 1)
        t->got++;
    else
        CHECK_MSG(n == WEFT_ECANCELED || n == WEFT_ETIMEDOUT, "a reader got %zd", n);
    return 0;
}

/* What was written is read by the one that was cancelled, or by us afterwards: never lost, never twice. */
static int cancel_race(void *arg) {
    uint64_t random = test_random();
    int fd[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    for (long i = (intptr_t)arg; i > 0; i--) {
        taker t = {.fd = fd[0]};
        bool by_time = test_below(&random, 3) == 0;
        if (by_time) t.deadline = weft_after((int64_t)test_below(&random, 20000));
        weft_scope s;
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, take_one, &t), 0);
        for (uint64_t k = test_below(&random, 3); k; k--) weft_yield();
        CHECK_EQ(write(fd[1], "x", 1), 1);
        if (!by_time) weft_scope_cancel(&s);
        int err = weft_scope_end(&s);
        CHECK_EQ(err, 0);
        char c;
        ssize_t left = weft_fd_read(fd[0], &c, 1, t.got ? WEFT_POLL : WEFT_FOREVER);
        CHECK_EQ(left, t.got ? WEFT_EAGAIN : 1);
    }
    CHECK_EQ(weft_fd_close(fd[0]), 0);
    CHECK_EQ(weft_fd_close(fd[1]), 0);
    return 0;
}
static void check_cancel(int workers) {
    weft_config cfg = {.workers = workers};
    CHECK_EQ(weft_run(cancel_race, as_arg(test_scale(20000, 100)), &cfg), 0);
}
TEST(fd_stress, a_cancelled_read_takes_all_or_nothing_1) { check_cancel(1); }
TEST(fd_stress, a_cancelled_read_takes_all_or_nothing_2) { check_cancel(2); }
TEST(fd_stress, a_cancelled_read_takes_all_or_nothing_4) { check_cancel(4); }
TEST(fd_stress, a_cancelled_read_takes_all_or_nothing_8) { check_cancel(8); }

/* ---- accept against the listener's close ---- */

typedef struct {
    weft_listener *l;
    char addr[WEFT_ADDR_MAX];
    atomic_int accepted, dialled;
} hall;

static int accept_all(void *arg) {
    hall *h = arg;
    weft_conn *c;
    int err;
    while (!(err = weft_accept(h->l, &c, WEFT_FOREVER))) {
        atomic_fetch_add(&h->accepted, 1);
        CHECK_EQ(weft_conn_close(c), 0);
    }
    CHECK_EQ(err, WEFT_ECLOSED);
    weft_listener_unref(h->l);
    return 0;
}
static int dial_some(void *arg) {
    hall *h = arg;
    for (int i = 0; i < 4; i++) {
        weft_conn *c;
        int err = weft_dial(&c, h->addr, WEFT_FOREVER);
        CHECK_MSG(err == 0 || err == -ECONNREFUSED || err == -ECONNRESET, "%s", weft_net_error());
        if (!err) atomic_fetch_add(&h->dialled, 1);
        CHECK_EQ(weft_conn_close(c), 0);
    }
    return 0;
}

/* The listener is closed while they dial, or when each that stood has been accepted. */
static int accept_race(void *arg) {
    uint64_t random = test_random();
    for (long i = (intptr_t)arg; i > 0; i--) {
        hall h = {.l = NULL};
        CHECK_EQ(weft_tcp_listen(&h.l, "127.0.0.1:0", NULL), 0);
        CHECK_GT(weft_listener_addr(h.l, h.addr, sizeof h.addr), 0);
        bool early = test_below(&random, 2);
        weft_scope s, clients;
        weft_scope_begin(&s, NULL);
        for (int k = 0; k < 3; k++) {
            weft_listener_ref(h.l);
            CHECK_EQ(weft_spawn(&s, accept_all, &h), 0);
        }
        weft_scope_begin(&clients, NULL);
        for (int k = 0; k < 2; k++) CHECK_EQ(weft_spawn(&clients, dial_some, &h), 0);
        for (uint64_t k = early ? test_below(&random, 8) : 0; k; k--) weft_yield();
        if (early) CHECK_EQ(weft_listener_close(h.l), 0);
        CHECK_EQ(weft_scope_end(&clients), 0);
        while (!early && atomic_load(&h.accepted) < atomic_load(&h.dialled)) weft_yield();
        if (!early) CHECK_EQ(weft_listener_close(h.l), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    return 0;
}
static void check_accept(int workers) { run_and_close_all(workers, accept_race, test_scale(600, 20)); }
TEST(fd_stress, closing_a_listener_ends_every_accept_1) { check_accept(1); }
TEST(fd_stress, closing_a_listener_ends_every_accept_2) { check_accept(2); }
TEST(fd_stress, closing_a_listener_ends_every_accept_4) { check_accept(4); }
TEST(fd_stress, closing_a_listener_ends_every_accept_8) { check_accept(8); }

/* ---- plain threads read on while runtimes come and go ---- */

enum { OUTSIDE = 4 };
static atomic_int outside_over;
static atomic_long outside_read;

typedef struct {
    int fd[2];
    pthread_t reader, writer;
    uint32_t sent, got;
} pipeline;

static void *write_numbers(void *arg) {
    pipeline *p = arg;
    for (; !atomic_load(&outside_over); p->sent++) {
        CHECK_EQ(write(p->fd[1], &p->sent, sizeof p->sent), sizeof p->sent);
        sched_yield();
    }
    CHECK_EQ(shutdown(p->fd[1], SHUT_WR), 0);
    return NULL;
}

static void *read_numbers(void *arg) {
    pipeline *p = arg;
    uint64_t random = test_random();
    for (;;) {
        uint32_t v;
        ssize_t n = weft_fd_read(p->fd[0], &v, sizeof v, test_below(&random, 2) ? WEFT_FOREVER : weft_after(100 * WEFT_US));
        if (n == 0) return NULL;
        if (n == WEFT_ETERMINATED || n == WEFT_ETIMEDOUT) continue;
        CHECK_EQ(n, sizeof v); /* a socket gives whole numbers here: each is written at once */
        CHECK_EQ(v, p->got++);
        atomic_fetch_add(&outside_read, 1);
    }
}
static bool read_enough(void *from) { return atomic_load(&outside_read) - *(long *)from >= 50; }

TEST(fd_stress, plain_threads_read_on_while_runtimes_come_and_go) {
    pipeline p[OUTSIDE] = {{.sent = 0}};
    int64_t end = test_long_enough();
    for (int i = 0; i < OUTSIDE; i++) {
        CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, p[i].fd), 0);
        CHECK_EQ(pthread_create(&p[i].reader, NULL, read_numbers, &p[i]), 0);
        CHECK_EQ(pthread_create(&p[i].writer, NULL, write_numbers, &p[i]), 0);
    }
    for (long i = test_scale(300, 20); i > 0 && test_clock_ns() < end; i--) {
        CHECK_EQ(set_up(2), 0);
        CHECK_EQ(weft_go(wait_for_ever, NULL), 0);
        for (int k = 0; k < 2; k++) { /* some are read with this runtime, and some without any */
            long from = atomic_load(&outside_read);
            test_until(read_enough, &from);
            if (!k) CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        }
    }
    atomic_store(&outside_over, 1);
    for (int i = 0; i < OUTSIDE; i++) {
        CHECK_EQ(pthread_join(p[i].writer, NULL), 0);
        CHECK_EQ(pthread_join(p[i].reader, NULL), 0);
        CHECK_EQ(p[i].got, p[i].sent);
        CHECK_EQ(weft_fd_close(p[i].fd[0]) | weft_fd_close(p[i].fd[1]), 0);
    }
}

/* ---- threads without a runtime ---- */

enum { CROWD = 6 };
static struct {
    weft_conn *conn;
    atomic_int sum;
} crowd;

/* Reads bytes until the connection is closed; many reads end at their deadline, and have taken nothing. */
static void *read_in_crowd(void *arg) {
    uint64_t random = (uint64_t)(uintptr_t)arg * 0x9e3779b97f4a7c15u + test_random();
    for (bool open = true; open;) {
        unsigned char c = 0;
        ssize_t n = weft_conn_read(crowd.conn, &c, 1, weft_after((int64_t)test_below(&random, 300) * WEFT_US + 1));
        if (n == 1) atomic_fetch_add(&crowd.sum, c);
        open = n != WEFT_ECLOSED;
        if (open && n != 1) CHECK_MSG(n == WEFT_ETIMEDOUT, "a reader got %zd", n);
    }
    weft_conn_unref(crowd.conn);
    return NULL;
}
TEST(fd_stress, threads_without_a_runtime_read_each_byte_once) {
    uint64_t random = test_random();
    for (long round = test_scale(30, 3); round > 0; round--) {
        int fd[2], sent = 0;
        pthread_t t[CROWD];
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
        CHECK_EQ(weft_conn_adopt(&crowd.conn, fd[0]), 0);
        atomic_store(&crowd.sum, 0);
        for (intptr_t i = 0; i < CROWD; i++) {
            weft_conn_ref(crowd.conn);
            CHECK_EQ(pthread_create(&t[i], NULL, read_in_crowd, as_arg(i)), 0);
        }
        for (int i = 0; i < 400; i++) {
            unsigned char c = (unsigned char)(1 + test_below(&random, 200));
            CHECK_EQ(write(fd[1], &c, 1), 1);
            sent += c;
            if (!test_below(&random, 4)) usleep((useconds_t)test_below(&random, 200));
        }
        while (atomic_load(&crowd.sum) != sent) sched_yield();
        CHECK_EQ(weft_conn_close(crowd.conn), 0);
        for (int i = 0; i < CROWD; i++) CHECK_EQ(pthread_join(t[i], NULL), 0);
        CHECK_EQ(close(fd[1]), 0);
    }
}
