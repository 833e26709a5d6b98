/* SPDX-License-Identifier: MIT */
/* Tasks that answer at the same time send by one system call (src/io/depart.h). */
#include <errno.h>
#include <sys/wait.h>

#include "api/common.h"
#include "dear.h"
#include "departs.h"
#include "io/depart.h"
#include "os/uring.h"

enum { CLIENTS = 40, TOGETHER = 24, SMALL = 64 };

static uint64_t departures(void) {
    weft_stats s;
    weft_stats_get(&s);
    return s.poll_departures;
}

/* The kernel has it, and lets us, and the library was built where there is a header for it; nor were we told to do without. */
static bool has_ring(void) {
    weft__uring ring;
    const char *without = getenv("WEFT_NO_IO_URING");
    if (without && strcmp(without, "0") != 0) return false;
    bool has = weft__uring_open(&ring) == 0;
    if (has) weft__uring_close(&ring);
    return has;
}
static void check_departures(uint64_t n) {
    if (has_ring())
        CHECK_GE(departures(), n);
    else
        CHECK_EQ(departures(), 0);
}

struct client {
    weft_conn *c;
    int peer, number;
    _Atomic ssize_t wrote;
    void (*before)(struct client *); /* it answers, if not NULL */
    char *from;                      /* where its answer is sent from, if not NULL */
    _Atomic bool silent;             /* it does not answer */
};
static struct client clients[CLIENTS];
static weft_deadline (*until)(void); /* when answers are to be sent; NULL: whenever */
static atomic_int waiting, answered;

static int answer(void *arg) {
    struct client *k = arg;
    weft_conn *c = k->c;
    char buf[SMALL];
    for (;;) {
        atomic_fetch_add(&waiting, 1);
        ssize_t n = weft_conn_read(c, buf, sizeof buf, WEFT_FOREVER);
        if (n <= 0) return n == WEFT_ECLOSED ? 0 : (int)n;
        if (k->before) k->before(k);
        if (k->from) memcpy(k->from, buf, (size_t)n);
        if (!k->silent) k->wrote = weft_conn_write(c, k->from ? k->from : buf, (size_t)n, until ? until() : WEFT_FOREVER);
        atomic_fetch_add(&answered, 1);
    }
}

static void open_clients(weft_scope *s) {
    atomic_store(&waiting, 0);
    atomic_store(&answered, 0);
    weft_scope_begin(s, NULL);
    for (int i = 0; i < CLIENTS; i++) {
        int fd[2];
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
        clients[i] = (struct client){.peer = fd[1], .number = i};
        CHECK_EQ(weft_conn_adopt(&clients[i].c, fd[0]), 0);
        CHECK_EQ(weft_spawn(s, answer, &clients[i]), 0);
    }
}
static void close_clients(weft_scope *s) {
    for (int i = 0; i < CLIENTS; i++)
        if (clients[i].peer >= 0) CHECK_EQ(weft_fd_close(clients[i].peer), 0);
    CHECK_EQ(weft_scope_end(s), 0);
    for (int i = 0; i < CLIENTS; i++)
        if (clients[i].c) CHECK_EQ(weft_conn_close(clients[i].c), 0);
}

/* Something from each, in round `round`. `n` bytes. */
static void ask(int i, int round, size_t n) {
    char text[SMALL];
    memset(text, 'a' + (i + round) % 26, sizeof text);
    CHECK_EQ(write(clients[i].peer, text, n), (ssize_t)n);
}
static void hear(int i, int round, size_t n) {
    char text[SMALL];
    CHECK_EQ(weft_fd_recv(clients[i].peer, text, n, MSG_WAITALL, WEFT_FOREVER), (ssize_t)n);
    for (size_t k = 0; k < n; k++) CHECK_EQ(text[k], 'a' + (i + round) % 26);
}
static void ask_all(int round) {
    task_wait_parked(&waiting, (round + 1) * CLIENTS);
    for (int i = 0; i < CLIENTS; i++) ask(i, round, 1 + (size_t)i);
}
static void hear_all(int round) {
    for (int i = 0; i < CLIENTS; i++) hear(i, round, 1 + (size_t)i);
}

static int rounds(void *arg) {
    weft_scope s;
    open_clients(&s);
    for (int round = 0; round < (int)(intptr_t)arg; round++) {
        ask_all(round);
        hear_all(round);
    }
    task_wait(&answered, (int)(intptr_t)arg * CLIENTS);
    for (int i = 0; i < CLIENTS; i++) CHECK_EQ(clients[i].wrote, 1 + i);
    close_clients(&s);
    return 0;
}

static int together(void *arg) {
    CHECK_EQ(rounds(arg), 0);
    check_departures(TOGETHER);
    return 0;
}
TEST(depart, answers_at_the_same_time_are_sent_together) { CHECK_EQ(run_on(1, together, as_arg(5)), 0); }

static int some_rounds(void *arg) {
    (void)arg;
    return rounds(as_arg(20));
}
TEST(depart, everybody_sends_its_own) {
    run_each(some_rounds);
    run_each_watched(some_rounds);
}

static int one(void *arg) {
    weft_scope s;
    (void)arg;
    open_clients(&s);
    task_wait_parked(&waiting, CLIENTS);
    for (int round = 0; round < 10; round++) {
        ask(0, round, 3);
        hear(0, round, 3);
    }
    CHECK_EQ(departures(), 0);
    close_clients(&s);
    return 0;
}
TEST(depart, who_answers_alone_does_not_wait) { CHECK_EQ(run_on(1, one, NULL), 0); }

TEST(depart, without_io_uring_everybody_sends_alone) {
    setenv("WEFT_NO_IO_URING", "1", 1);
    CHECK_EQ(run_on(1, together, as_arg(5)), 0); /* checks that none were counted */
    setenv("WEFT_NO_IO_URING", "0", 1);
}

/* What a system call takes longer than an entry of a ring is never that much, or always. */
static void depart_for(int64_t gain) {
    if (!has_ring()) test_skip("io_uring is not to be had here, or not wanted");
    unsetenv("WEFT_NO_IO_URING");
    weft__depart_gain = gain;
}
static int rings_open(void) {
    int n = 0;
    char path[64], to[64];
    for (int i = 0; i < 1024; i++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", i);
        ssize_t length = readlink(path, to, sizeof to - 1);
        to[length < 0 ? 0 : length] = 0;
        n += strcmp(to, "anon_inode:[io_uring]") == 0;
    }
    return n;
}
static int alone_after_all(void *arg) {
    (void)arg;
    CHECK_EQ(rounds(as_arg(3)), 0);
    CHECK_EQ(departures(), 0);
    CHECK_EQ(rings_open(), 0);
    return 0;
}
static int together_by_a_ring(void *arg) {
    CHECK_EQ(together(arg), 0);
    CHECK_EQ(rings_open(), 1);
    return 0;
}
TEST(depart, where_it_does_not_pay_everybody_sends_alone) {
    depart_for(INT64_MAX);
    run_and_close_all(1, alone_after_all, 0);
}
TEST(depart, where_it_pays_they_go_together) {
    depart_for(INT64_MIN);
    CHECK_EQ(run_on(1, together_by_a_ring, as_arg(5)), 0);
}

TEST(depart, where_system_calls_are_dear_they_go_together) {
    depart_for(weft__depart_gain);
    test_skip_under("what a system call takes is the tool's", "what a system call takes is the emulator's");
    if (!make_calls_dear()) test_skip("no filter is to be had here");
    CHECK_EQ(run_on(1, together_by_a_ring, as_arg(5)), 0);
}

TEST(depart, no_descriptor_is_left_behind) { run_and_close_all(1, rounds, 3); }

/* ---- what a send may give ---- */

static void shut(struct client *k) {
    if (k->number % 3 == 0) CHECK_EQ(weft_fd_close(k->peer), 0);
    if (k->number % 3 == 0) k->peer = -1;
}
static int errors(void *arg) {
    weft_scope s;
    (void)arg;
    open_clients(&s);
    for (int i = 0; i < CLIENTS; i++) clients[i].before = shut; /* after all have asked, before any has been answered */
    ask_all(0);
    task_wait(&answered, CLIENTS);
    for (int i = 0; i < CLIENTS; i++) {
        CHECK_EQ(clients[i].wrote, i % 3 ? 1 + i : -EPIPE);
        if (i % 3) hear(i, 0, 1 + (size_t)i);
    }
    check_departures(TOGETHER);
    close_clients(&s);
    return 0;
}
TEST(depart, an_error_is_told_to_whose_send_it_was) { CHECK_EQ(run_on(1, errors, NULL), 0); }

/* What fits goes, and the rest when there is room. */
static int no_room(void *arg) {
    static char junk[4096];
    static ssize_t filled[CLIENTS];
    weft_scope s;
    (void)arg;
    open_clients(&s);
    for (int i = 0; i < CLIENTS; i += 2) {
        filled[i] = 0;
        for (ssize_t n; (n = send(weft_conn_fd(clients[i].c), junk, sizeof junk, MSG_DONTWAIT)) > 0;) filled[i] += n;
        CHECK_EQ(errno, EAGAIN);
    }
    ask_all(0);
    for (int i = 1; i < CLIENTS; i += 2) hear(i, 0, 1 + (size_t)i);
    CHECK_EQ(atomic_load(&answered), CLIENTS / 2);
    for (int i = 0; i < CLIENTS; i += 2) {
        for (ssize_t n, left = filled[i]; left; left -= n) {
            n = weft_fd_recv(clients[i].peer, junk, sizeof junk < (size_t)left ? sizeof junk : (size_t)left, 0, WEFT_FOREVER);
            CHECK_GT(n, 0);
        }
        hear(i, 0, 1 + (size_t)i);
    }
    check_departures(TOGETHER);
    close_clients(&s);
    return 0;
}
TEST(depart, who_finds_no_room_waits_for_it) { CHECK_EQ(run_on(1, no_room, NULL), 0); }

static void wild(struct client *k) {
    if (k->number == 7) k->wrote = weft_conn_write(k->c, (void *)(uintptr_t)8, SMALL, WEFT_FOREVER);
    if (k->number == 7) CHECK_EQ(k->wrote, -EFAULT);
}
static int bad_memory(void *arg) {
    weft_scope s;
    (void)arg;
    open_clients(&s);
    clients[7].before = wild;
    ask_all(0);
    hear_all(0);
    close_clients(&s);
    return 0;
}
TEST(depart, memory_that_is_not_there_is_the_writers_error) {
    test_skip_under("the tools complain about the address themselves", NULL);
    CHECK_EQ(run_on(1, bad_memory, NULL), 0);
}

/* ---- who does something else meanwhile ---- */

/* The second closes the first one's connection, whose answer has yet to depart: it does, and then the number goes. */
static void close_first(struct client *k) {
    (void)k;
    CHECK_EQ(clients[0].wrote, 0);
    CHECK_EQ(weft_conn_close(clients[0].c), 0);
    clients[0].c = NULL;
    CHECK_EQ(clients[0].wrote, 0);
}
static int closed(void *arg) {
    weft_scope s;
    char c;
    (void)arg;
    open_clients(&s);
    weft_conn *first = weft_conn_ref(clients[0].c); /* its task uses it again */
    clients[1].before = has_ring() ? close_first : NULL;
    ask_all(0);
    hear_all(0);
    if (has_ring()) CHECK_EQ(weft_fd_recv(clients[0].peer, &c, 1, 0, WEFT_FOREVER), 0);
    CHECK_EQ(clients[0].wrote, 1);
    close_clients(&s);
    weft_conn_unref(first);
    return 0;
}
TEST(depart, closing_waits_for_who_has_not_departed) { CHECK_EQ(run_on(1, closed, NULL), 0); }

/* The second releases the first one's number: not before the answer has departed, for the number may mean anything then. */
static void release_first(struct client *k) {
    int pair[2];
    char c;
    (void)k;
    CHECK_EQ(clients[0].wrote, 0);
    int fd = weft_conn_release(clients[0].c);
    CHECK_GE(fd, 0);
    clients[0].c = NULL;
    CHECK_EQ(clients[0].wrote, 1);
    CHECK_EQ(close(fd), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    CHECK(pair[0] == fd || pair[1] == fd);
    weft_yield();
    for (int i = 0; i < 2; i++) CHECK_EQ(recv(pair[i], &c, 1, MSG_DONTWAIT), -1);
    for (int i = 0; i < 2; i++) CHECK_EQ(close(pair[i]), 0);
}
static int released(void *arg) {
    weft_scope s;
    (void)arg;
    open_clients(&s);
    weft_conn *first = weft_conn_ref(clients[0].c); /* as above */
    clients[1].before = has_ring() ? release_first : NULL;
    ask_all(0);
    hear_all(0);
    close_clients(&s);
    weft_conn_unref(first);
    return 0;
}
TEST(depart, releasing_waits_for_who_has_not_departed) { CHECK_EQ(run_on(1, released, NULL), 0); }

/* The second cancels everybody: who has not departed does, and hears of it at its next call. */
static weft_scope crowd;
static void cancel_all(struct client *k) {
    (void)k;
    CHECK_EQ(clients[0].wrote, 0); /* also without a ring: that is found out with the first departure */
    weft_scope_cancel(&crowd);
}
static int cancelled(void *arg) {
    char c;
    (void)arg;
    open_clients(&crowd);
    clients[1].before = cancel_all;
    ask_all(0);
    CHECK_EQ(weft_scope_end(&crowd), 0);
    CHECK_EQ(clients[0].wrote, 1);
    CHECK_EQ(recv(clients[0].peer, &c, 1, MSG_DONTWAIT), 1);
    CHECK_EQ(c, 'a');
    CHECK_EQ(clients[1].wrote, WEFT_ECANCELED); /* it had not begun */
    CHECK_EQ(recv(clients[1].peer, &c, 1, MSG_DONTWAIT), -1);
    for (int i = 0; i < CLIENTS; i++) CHECK_EQ(weft_fd_close(clients[i].peer) | weft_conn_close(clients[i].c), 0);
    return 0;
}
TEST(depart, cancelling_does_not_stop_who_is_about_to_depart) { CHECK_EQ(run_on(1, cancelled, NULL), 0); }

/* One parks for something else before it answers: nobody is left to send for the rest, and they do it when they run again. */
static weft_chan *gate;
static void wait_at_gate(struct client *k) {
    (void)k;
    char c;
    if (k->number == CLIENTS - 1) CHECK_EQ(weft_chan_recv(gate, &c, WEFT_FOREVER), 0);
}
static int elsewhere(void *arg) {
    weft_scope s;
    (void)arg;
    gate = weft_chan_new(1, 0);
    open_clients(&s);
    clients[CLIENTS - 1].before = wait_at_gate;
    ask_all(0);
    for (int i = 0; i < CLIENTS - 1; i++) hear(i, 0, 1 + (size_t)i);
    CHECK_EQ(weft_chan_send(gate, "x", WEFT_FOREVER), 0);
    hear(CLIENTS - 1, 0, CLIENTS);
    check_departures(TOGETHER);
    close_clients(&s);
    weft_chan_unref(gate);
    return 0;
}
TEST(depart, who_waits_for_something_else_keeps_nobody) { CHECK_EQ(run_on(1, elsewhere, NULL), 0); }

/* One that computes for long before it answers keeps the others waiting twice, and then nobody waits for others any more. */
static void compute(struct client *k) {
    for (int64_t end = weft_now() + WEFT_MS; k->number == CLIENTS / 2 && weft_now() < end;) continue;
}
static int computing(void *arg) {
    enum { ROUNDS = 20 };
    weft_scope s;
    (void)arg;
    open_clients(&s);
    for (int i = 0; i < CLIENTS; i++) clients[i].before = compute;
    for (int round = 0; round < ROUNDS; round++) {
        ask_all(round);
        hear_all(round);
    }
    CHECK_LE(departures(), 3 * CLIENTS); /* fewer, where others were late already */
    close_clients(&s);
    return 0;
}
TEST(depart, who_computes_keeps_others_waiting_twice_at_most) { CHECK_EQ(run_on(1, computing, NULL), 0); }

/* It is answers that count, not departures: many of one answer each, in time, do not make good for one of many that is late. */
static void pairs_then_all(int at) {
    for (int i = 0; i < 60; i++) {
        clients[1].silent = true;
        task_wait_parked(&waiting, at + CLIENTS + 2 * i);
        for (int k = 0; k < 2; k++) ask(k, 0, 1);
        hear(0, 0, 1);
    }
    clients[1].silent = false;
    task_wait_parked(&waiting, at + CLIENTS + 120);
    for (int i = 0; i < CLIENTS; i++) ask(i, 0, 1);
    for (int i = 0; i < CLIENTS; i++) hear(i, 0, 1);
}
static int forgiving(void *arg) {
    weft_scope s;
    (void)arg;
    open_clients(&s);
    for (int i = 0; i < CLIENTS; i++) clients[i].before = compute;
    for (int i = 0; i < 10; i++) pairs_then_all(i * (120 + CLIENTS));
    CHECK_LE(departures(), 3 * CLIENTS); /* fewer, where others were late already */
    close_clients(&s);
    return 0;
}
TEST(depart, those_who_go_alone_do_not_make_good_for_a_crowd_that_is_late) { CHECK_EQ(run_on(1, forgiving, NULL), 0); }

/* ---- who may not wait ---- */

static weft_deadline at_once(void) { return WEFT_POLL; }
static weft_deadline soon(void) { return weft_after(WEFT_MS); }
static weft_deadline far_off(void) { return weft_after(HOUR); }
static int hurried(void *arg) {
    until = at_once;
    CHECK_EQ(rounds(arg), 0);
    until = soon;
    CHECK_EQ(rounds(arg), 0);
    CHECK_EQ(departures(), 0);
    until = far_off;
    return together(arg);
}
TEST(depart, who_may_not_wait_goes_alone) { CHECK_EQ(run_on(1, hurried, as_arg(5)), 0); }

/* ---- memory that nobody has sent from: it may have to come from a disk, or from another task ---- */

static int from_pages(void *arg) {
    enum { PAGE = 65536 };
    weft_scope s;
    char *pages = calloc(CLIENTS, PAGE);
    (void)arg;
    CHECK(pages);
    open_clients(&s);
    for (int i = 0; i < CLIENTS; i++) clients[i].from = pages + (size_t)i * PAGE;
    ask_all(0);
    hear_all(0);
    CHECK_EQ(departures(), 0);
    for (int round = 1; round < 5; round++) {
        ask_all(round);
        hear_all(round);
    }
    check_departures(TOGETHER);
    close_clients(&s);
    free(pages);
    return 0;
}
TEST(depart, from_a_page_for_the_first_time_everybody_goes_alone) { CHECK_EQ(run_on(1, from_pages, NULL), 0); }

/* ---- the child of a fork has a ring of its own ---- */

TEST(depart, a_child_has_a_ring_of_its_own) {
    int status = -1;
    test_skip_under("what the tools make of a child beside threads is fork.c's subject", NULL);
    CHECK_EQ(set_up(1), 0);
    CHECK_EQ(weft_block_on(together, as_arg(3)), 0);
    pid_t child = fork();
    CHECK_GE(child, 0);
    if (child == 0) {
        test_forked();
        int fds = test_fds();
        CHECK_EQ(run_on(1, together, as_arg(3)), 0);
        CHECK_LE(test_fds(), fds);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(weft_block_on(rounds, as_arg(3)), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}
