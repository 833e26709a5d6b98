/* SPDX-License-Identifier: MIT */
/* Select: which of several cases is done, at random or in the order given; and sends that are told of a close. */
#include "api/ints.h"

enum { MOST = 24 };

/* ---- cases on one queue, after a wait ---- */

enum { SERVE, CLOSE, HOWS };

struct stand {
    weft_chan *c;
    int n, how; /* cases on the channel */
    bool sends;
};

static bool all_wait(void *arg) {
    struct stand *s = arg;
    weft_chan_stats now;
    weft_chan_stats_get(s->c, &now);
    return (int)(s->sends ? now.send_waiting : now.recv_waiting) == s->n;
}

/* Ends each wait, once all cases of it are on the queue. */
static int serve(void *arg) {
    struct stand *s = arg;
    test_task_until(all_wait, s);
    if (s->how == CLOSE) return weft_chan_close(s->c);
    if (s->sends) return weft_chan_recv(s->c, NULL, WEFT_FOREVER);
    return weft_chan_send(s->c, &s->n, WEFT_FOREVER);
}

/* One wait: which case ended it. `other` is the last case, and never ready; `fd`: and a descriptor behind it. */
static int wait_once(struct stand *s, weft_chan *other, int fd, bool ordered) {
    weft_case k[MOST + 2];
    int x = 0;
    bool open;
    size_t n = 0;
    for (; n < (size_t)s->n; n++) k[n] = s->sends ? weft_on_send_open(s->c, &x, &open) : weft_on_recv(s->c, &x, &open);
    if (other) k[n++] = weft_on_recv(other, &x, NULL);
    if (fd >= 0) k[n++] = weft_on_fd(fd, WEFT_READABLE);
    weft_task *t;
    CHECK_EQ(weft_task_start(&t, serve, s, NULL), 0);
    int which = ordered ? weft_selectv_ordered(k, n, WEFT_FOREVER) : weft_selectv(k, n, WEFT_FOREVER), r = -1;
    CHECK_EQ(weft_task_join(t, &r, WEFT_FOREVER), 0);
    CHECK_EQ(r, 0);
    CHECK(which >= 0 && which < s->n);
    return which;
}

static void count_waits(struct stand s, weft_chan *other, int fd, int hits[MOST]) {
    enum { EACH = 100 };
    memset(hits, 0, MOST * sizeof *hits);
    for (int i = 0; i < EACH * s.n; i++) {
        s.c = new_chan(0);
        hits[wait_once(&s, other, fd, false)]++;
        weft_chan_unref(s.c);
    }
    for (int i = 0; i < s.n; i++) { /* 100 expected, deviation below 10 */
        CHECK_GT(hits[i], 15);
        CHECK_LT(hits[i], 185);
    }
}

static int wait_fairly(void *arg) {
    (void)arg;
    int fd[2], hits[MOST];
    weft_chan *never = new_chan(0);
    open_far_pair(SOCK_STREAM, fd);
    static const int counts[] = {2, 3, 20};
    for (size_t q = 0; q < COUNT(counts); q++)
        for (int mode = 0; mode < 2 * HOWS; mode++) {
            struct stand s = {.n = counts[q], .how = mode % HOWS, .sends = mode >= HOWS};
            count_waits(s, q == 1 ? never : NULL, -1, hits);
            if (q < 2) count_waits(s, never, fd[0], hits);
        }
    CHECK_EQ(weft_fd_close(fd[0]), 0);
    CHECK_EQ(close(fd[1]), 0);
    weft_chan_unref(never);
    return 0;
}

TEST(select_order, cases_on_one_channel_are_equally_likely_after_a_wait) {
    CHECK_EQ(run_on(1, wait_fairly, NULL), 0);
    CHECK_EQ(run_on(2, wait_fairly, NULL), 0);
}

/* ---- ordered: what is ready ---- */

static int first_ready(void *arg) {
    (void)arg;
    static const int counts[] = {1, 2, 3, 16, 17, MOST};
    for (size_t q = 0; q < COUNT(counts); q++) {
        int n = counts[q], x = 0;
        weft_chan *c[MOST];
        weft_case k[MOST];
        for (int i = 0; i < n; i++) {
            c[i] = new_chan(2);
            put(c[i], i);
            k[i] = i % 2 ? weft_on_send(c[i], &x) : weft_on_recv(c[i], &x, NULL);
        }
        for (int first = 0; first < n; first++) { /* all from `first` on are ready, those before are full, empty or disabled */
            for (int t = 0; t < 4; t++) {
                weft_deadline d = t == 0 ? WEFT_POLL : t == 1 ? weft_at(1) : t == 2 ? WEFT_FOREVER : weft_after(HOUR);
                CHECK_EQ(weft_selectv_ordered(k, (size_t)n, d), first);
                if (first % 2)
                    take(c[first]);
                else
                    put(c[first], first);
            }
            if (first % 3 == 2)
                k[first].chan = NULL;
            else if (first % 2)
                put(c[first], 0);
            else
                take(c[first]);
        }
        CHECK_EQ(weft_selectv_ordered(k, (size_t)n, WEFT_POLL), WEFT_EAGAIN);
        CHECK_EQ(weft_selectv_ordered(k, (size_t)n, weft_at(1)), WEFT_ETIMEDOUT);
        CHECK_EQ(weft_selectv_ordered(k, (size_t)n, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
        for (int i = 0; i < n; i++) weft_chan_unref(c[i]);
    }
    return 0;
}

TEST(select_order, an_ordered_select_does_the_first_that_can_be_done) {
    run_each(first_ready);
    CHECK_EQ(first_ready(NULL), 0); /* a plain thread, without a runtime */
}

/* Two tasks that have ended, two descriptors that are ready, a channel behind each. */
static int first_of_kinds(void *arg) {
    (void)arg;
    int a[2], b[2], x = 0, r = 0;
    open_far_pair(SOCK_STREAM, a);
    open_far_pair(SOCK_STREAM, b);
    weft_chan *c = new_chan(1);
    weft_task *t;
    CHECK_EQ(weft_task_start(&t, return_int, as_arg(7), NULL), 0);
    put(c, 1);
    weft_case k[] = {weft_on_fd(a[0], WEFT_READABLE), weft_on_recv(c, &x, NULL), weft_on_fd(b[0], WEFT_READABLE)};
    CHECK_EQ(write(b[1], "x", 1), 1);
    CHECK_EQ(weft_selectv_ordered(k, COUNT(k), WEFT_FOREVER), 1); /* not the descriptor behind it */
    CHECK_EQ(weft_selectv_ordered(k, COUNT(k), WEFT_FOREVER), 2);
    put(c, 2);
    CHECK_EQ(write(a[1], "x", 1), 1);
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weft_selectv_ordered(k, COUNT(k), WEFT_POLL), 0); /* nothing is read: it stays ready */
        CHECK_EQ(weft_selectv_ordered(k, COUNT(k), WEFT_FOREVER), 0);
    }
    CHECK_EQ(weft_chan_len(c), 1);
    CHECK_EQ(weft_select_ordered(WEFT_FOREVER, weft_on_task(t, &r)), 0);
    CHECK_EQ(r, 7);
    CHECK_EQ(weft_task_start(&t, return_int, as_arg(8), NULL), 0);
    while (weft_select_ordered(WEFT_POLL, weft_on_task(t, &r), weft_on_recv(c, &x, NULL)) != 0) put(c, 3); /* it ends soon */
    CHECK_EQ(r, 8);
    CHECK_EQ(weft_chan_len(c), 1);
    CHECK_EQ(weft_select_ordered(WEFT_POLL, weft_on_fd(-1, WEFT_READABLE), weft_on_recv(NULL, &x, NULL)), WEFT_EAGAIN);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(weft_fd_close(a[i]), 0);
        CHECK_EQ(weft_fd_close(b[i]), 0);
    }
    weft_chan_unref(c);
    return 0;
}

TEST(select_order, descriptors_and_tasks_have_their_place_in_the_order) { run_each(first_of_kinds); }

static int first_outside(void *arg) {
    (void)arg;
    int fd[2], x = 0;
    open_far_pair(SOCK_STREAM, fd);
    weft_chan *c = new_chan(1);
    put(c, 1);
    CHECK_EQ(weft_select_ordered(WEFT_FOREVER, weft_on_fd(fd[0], WEFT_READABLE), weft_on_recv(c, &x, NULL)), 1);
    CHECK_EQ(weft_select_ordered(WEFT_POLL, weft_on_fd(fd[0], WEFT_READABLE), weft_on_recv(c, &x, NULL)), WEFT_EAGAIN);
    put(c, 1);
    CHECK_EQ(write(fd[1], "x", 1), 1);
    CHECK_EQ(weft_select_ordered(WEFT_POLL, weft_on_fd(fd[0], WEFT_READABLE), weft_on_recv(c, &x, NULL)), 0);
    CHECK_EQ(weft_select_ordered(weft_after(HOUR), weft_on_fd(fd[0], WEFT_READABLE), weft_on_recv(c, &x, NULL)), 0);
    CHECK_EQ(weft_fd_close(fd[0]), 0);
    CHECK_EQ(weft_fd_close(fd[1]), 0);
    weft_chan_unref(c);
    return 0;
}

TEST(select_order, an_ordered_select_needs_no_runtime) { CHECK_EQ(first_outside(NULL), 0); }

/* ---- ordered: a wait ---- */

static int wait_in_order(void *arg) {
    (void)arg;
    int fd[2];
    weft_chan *never = new_chan(0);
    open_far_pair(SOCK_STREAM, fd);
    for (int mode = 0; mode < 2 * HOWS; mode++)
        for (int i = 0; i < 60; i++) {
            struct stand s = {.c = new_chan(0), .n = i % 3 ? 3 : 20, .how = mode % HOWS, .sends = mode >= HOWS};
            CHECK_EQ(wait_once(&s, never, i % 2 ? fd[0] : -1, true), 0);
            weft_chan_unref(s.c);
        }
    CHECK_EQ(weft_fd_close(fd[0]), 0);
    CHECK_EQ(weft_fd_close(fd[1]), 0);
    weft_chan_unref(never);
    return 0;
}

TEST(select_order, an_ordered_select_that_waited_on_one_channel_takes_the_first_case) { run_each(wait_in_order); }

static int wait_for_last(void *arg) {
    (void)arg;
    int fd[2], x = 0;
    weft_chan *a = new_chan(0);
    struct stand s = {.c = new_chan(0), .n = 1, .how = SERVE};
    weft_task *t;
    open_far_pair(SOCK_STREAM, fd);
    CHECK_EQ(weft_task_start(&t, serve, &s, NULL), 0);
    CHECK_EQ(weft_select_ordered(weft_after(HOUR), weft_on_recv(a, &x, NULL), weft_on_fd(fd[0], WEFT_READABLE),
                                 weft_on_recv(s.c, &x, NULL)),
             2);
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    weft_scope scope;
    weft_scope_begin(&scope, NULL);
    weft_scope_cancel(&scope);
    CHECK_EQ(weft_select_ordered(WEFT_FOREVER, weft_on_recv(a, &x, NULL)), WEFT_ECANCELED);
    CHECK_EQ(weft_select_ordered(WEFT_POLL, weft_on_recv(a, &x, NULL), weft_on_fd(fd[0], WEFT_READABLE)), WEFT_ECANCELED);
    CHECK_EQ(weft_select_ordered(WEFT_POLL, weft_on_recv(a, &x, NULL), weft_on_fd(fd[0], WEFT_WRITABLE)), 1);
    CHECK_EQ(weft_scope_end(&scope), 0);
    weft_case wrong = weft_on_recv(a, &x, NULL);
    wrong.op = 99;
    CHECK_EQ(weft_selectv_ordered(&wrong, 1, WEFT_POLL), WEFT_EINVAL);
    CHECK_EQ(weft_fd_close(fd[0]), 0);
    CHECK_EQ(weft_fd_close(fd[1]), 0);
    weft_chan_unref(a);
    weft_chan_unref(s.c);
    return 0;
}

TEST(select_order, an_ordered_select_is_ended_by_what_comes_first) { run_each(wait_for_last); }

/* ---- sends that are told of a close ---- */

static int told(void *arg) {
    (void)arg;
    static const int counts[] = {1, 2, 3, 20};
    int fd[2], x = 5;
    open_far_pair(SOCK_STREAM, fd);
    weft_chan *never = new_chan(0);
    for (size_t q = 0; q < 2 * COUNT(counts); q++) {
        int n = counts[q % COUNT(counts)];
        bool open = false;
        weft_chan *c = new_chan(1);
        weft_case k[MOST];
        for (int i = 0; i < n; i++) k[i] = weft_on_recv(never, &x, NULL);
        if (q >= COUNT(counts) && n > 1) k[0] = weft_on_fd(fd[0], WEFT_READABLE);
        k[n - 1] = weft_on_send_open(c, &x, &open);
        CHECK_EQ(weft_selectv(k, (size_t)n, WEFT_FOREVER), n - 1);
        CHECK(open);
        CHECK_EQ(take(c), 5);
        CHECK_EQ(weft_chan_close(c), 0);
        CHECK_EQ(weft_selectv(k, (size_t)n, WEFT_FOREVER), n - 1);
        CHECK(!open);
        open = true;
        CHECK_EQ(weft_selectv_ordered(k, (size_t)n, WEFT_POLL), n - 1);
        CHECK(!open);
        CHECK_EQ(weft_chan_len(c), 0);
        k[n - 1] = weft_on_send_open(c, &x, NULL); /* as weft_on_send */
        CHECK_EQ(weft_selectv(k, (size_t)n, WEFT_FOREVER), WEFT_ECLOSED);
        weft_chan_unref(c);
    }
    CHECK_EQ(weft_fd_close(fd[0]), 0);
    CHECK_EQ(weft_fd_close(fd[1]), 0);
    weft_chan_unref(never);
    return 0;
}

TEST(select_order, a_send_case_is_told_that_its_channel_is_closed) { run_each(told); }

/* A channel without a limit needs memory for the next block, outside the lock. */
static int told_unlimited(void *arg) {
    (void)arg;
    bool open = false;
    int x = 0;
    weft_chan *c = weft_chan_new_opts(sizeof x, &(weft_chan_opts){.kind = WEFT_CHAN_UNLIMITED});
    CHECK(c);
    for (; x < 1000; x++, open = false) {
        CHECK_EQ(x % 2 ? weft_select_ordered(WEFT_POLL, weft_on_send_open(c, &x, &open))
                       : weft_select(WEFT_POLL, weft_on_send_open(c, &x, &open)),
                 0);
        CHECK(open);
    }
    for (int i = 0, got; i < x; i++) {
        CHECK_EQ(weft_select_ordered(WEFT_POLL, weft_on_recv(NULL, &got, NULL), weft_on_recv(c, &got, &open)), 1);
        CHECK_EQ(got, i);
    }
    CHECK_EQ(weft_chan_close(c), 0);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_send_open(c, &x, &open)), 0);
    CHECK(!open);
    weft_chan_unref(c);
    return 0;
}

TEST(select_order, so_is_one_on_a_channel_without_a_limit) { run_each(told_unlimited); }
