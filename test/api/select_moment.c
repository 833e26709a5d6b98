/* SPDX-License-Identifier: MIT */
/* What a select says of one moment. A helper holds the lock of a channel until the select waits for it, in the middle of its look, and changes channels then. */
#include <sched.h>

#include "api/ints.h"
#include "chan/chan.h"

enum { CLOSES, FILLS, EMPTIES, CHANGES }; /* what makes the second ready; EMPTIES: to be sent to */
enum { IDLE, ASKED, NOT_NEEDED, ANSWERED };

static weft_chan *first, *second, *gate;
static atomic_int round_no, held, question;
static void (*change)(void); /* with the gate's lock held, which it leaves */
static __thread bool looks;

static void await(atomic_int *at, int least) {
    while (atomic_load(at) < least) sched_yield();
}

/* Called while it waits for a lock, by whoever does. */
static void stuck(void) {
    int none = IDLE;
    if (looks && atomic_compare_exchange_strong(&question, &none, ASKED)) await(&question, ANSWERED);
}

static void *help(void *arg) {
    for (int i = 1; i <= (int)(intptr_t)arg; i++) {
        await(&round_no, i);
        weft__lock_take(&gate->lock);
        atomic_store(&held, i);
        await(&question, ASKED);
        if (atomic_load(&question) == ASKED)
            change();
        else
            weft__lock_leave(&gate->lock);
        atomic_store(&question, ANSWERED);
    }
    return NULL;
}

/* Is it held by the select that waits? */
static bool is_locked(weft_chan *c) { return weft__load(&c->lock.held, relaxed); }

static int look(weft_case *k, size_t n, bool ordered, weft_deadline d, int i) {
    atomic_store(&question, IDLE);
    atomic_store(&round_no, i);
    await(&held, i);
    looks = true;
    int r = ordered ? weft_selectv_ordered(k, n, d) : weft_selectv(k, n, d), none = IDLE;
    looks = false;
    atomic_compare_exchange_strong(&question, &none, NOT_NEEDED);
    await(&question, ANSWERED);
    return r;
}

static void start(pthread_t *helper, int rounds) {
    atomic_store(&round_no, 0);
    atomic_store(&held, 0);
    CHECK_EQ(weft_sleep(WEFT_POLL), 0);                /* each test is the child of a fork: what comes after one is done */
    weft__store(&weft__lock_is_stuck, stuck, relaxed); /* nobody else is there */
    CHECK_EQ(pthread_create(helper, NULL, help, as_arg(rounds)), 0);
}
static void finish(pthread_t helper) {
    CHECK_EQ(pthread_join(helper, NULL), 0);
    weft__store(&weft__lock_is_stuck, NULL, relaxed);
}

/* ---- at every moment one of two is ready ---- */

enum { ROUNDS = 60 };
static int how, changed;

/* The second becomes ready, and then the first, whose lock is held, is not any more. */
static void swap(void) {
    int x = 1;
    weft__block *wake = NULL;
    if (!is_locked(second)) {
        CHECK_EQ(how == CLOSES    ? weft_chan_close(second)
                 : how == EMPTIES ? weft_chan_try_recv(second, &x)
                                  : weft_chan_try_send(second, &x),
                 0);
        CHECK_EQ(how == EMPTIES ? weft__chan_send_locked(first, &x, &wake, false)
                                : weft__chan_recv_locked(first, NULL, &wake, false),
                 0);
        changed++;
    }
    weft__lock_leave(&first->lock);
}

struct variant {
    int how;
    size_t idle; /* cases beside the two */
    int fd;      /* a descriptor among them, or -1 */
    weft_deadline deadline;
};

static int one_is_ready(void *arg) {
    const struct variant *v = arg;
    weft_case k[40];
    weft_chan *quiet = new_chan(0);
    pthread_t helper;
    how = v->how;
    changed = 0;
    change = swap;
    start(&helper, ROUNDS);
    for (int i = 1; i <= ROUNDS; i++) {
        int x = 1;
        bool open;
        first = gate = new_chan(1);
        second = new_chan(1);
        put(how == EMPTIES ? second : first, 1);
        k[0] = how == EMPTIES ? weft_on_send(first, &x) : weft_on_recv(first, &x, &open);
        k[1] = how == EMPTIES ? weft_on_send(second, &x) : weft_on_recv(second, &x, &open);
        for (size_t q = 0; q < v->idle; q++) k[2 + q] = weft_on_recv(quiet, &x, NULL);
        if (v->fd >= 0) k[2] = weft_on_fd(v->fd, WEFT_READABLE);
        int r = look(k, 2 + v->idle, false, v->deadline, i);
        CHECK_MSG(r == 0 || r == 1, "round %d with %zu cases: none was ready, says %d", i, 2 + v->idle, r);
        weft_chan_unref(first);
        weft_chan_unref(second);
    }
    finish(helper);
    CHECK_GT(changed, 0);
    weft_chan_unref(quiet);
    return 0;
}

/* As a task and as a plain thread without a runtime. */
static void always_one(bool descriptor) {
    static const size_t idle[] = {0, 1, 30};
    int fd[2];
    open_far_pair(SOCK_STREAM, fd);
    for (int i = 0; i < CHANGES * 3 * 2; i++) {
        struct variant v = {i % CHANGES, idle[i / CHANGES % 3], -1, i % 4 < 2 ? WEFT_POLL : weft_at(1)};
        if (descriptor && !v.idle) continue;
        if (descriptor) v.fd = fd[0];
        CHECK_EQ(i < CHANGES * 3 ? run_on(1, one_is_ready, &v) : one_is_ready(&v), 0);
    }
    CHECK_EQ(close(fd[0]), 0);
    CHECK_EQ(close(fd[1]), 0);
}

TEST(select_moment, a_poll_sees_that_one_of_two_is_always_ready) { always_one(false); }
TEST(select_moment, so_does_a_poll_with_a_descriptor_among_its_cases) { always_one(true); }

/* ---- ordered: the first is ready before the second ---- */

static void fill_both(void) {
    int x = 1;
    if (!is_locked(first) && !is_locked(second)) {
        CHECK_EQ(weft_chan_try_send(first, &x), 0);
        CHECK_EQ(weft_chan_try_send(second, &x), 0);
        changed++;
    }
    weft__lock_leave(&gate->lock);
}

/* The lowest address is locked first. */
static void assign(weft_chan *c[3]) {
    int low = 0;
    for (int i = 1; i < 3; i++)
        if ((uintptr_t)c[i] < (uintptr_t)c[low]) low = i;
    gate = c[low];
    first = c[(low + 1) % 3];
    second = c[(low + 2) % 3];
}

static int in_order(void *arg) {
    const int *fd = arg;
    pthread_t helper;
    changed = 0;
    change = fill_both;
    start(&helper, ROUNDS);
    for (int i = 1; i <= ROUNDS; i++) {
        int x;
        weft_chan *c[3] = {new_chan(1), new_chan(1), new_chan(1)};
        assign(c);
        weft_case k[] = {weft_on_recv(first, &x, NULL), weft_on_recv(gate, &x, NULL), weft_on_recv(second, &x, NULL),
                         weft_on_fd(fd[0], WEFT_READABLE)};
        int r = look(k, i % 2 ? 3 : 4, true, i % 3 ? WEFT_POLL : WEFT_FOREVER, i);
        CHECK_MSG(r == 0, "round %d: %d is done, and the first was ready before", i, r);
        for (int q = 0; q < 3; q++) weft_chan_unref(c[q]);
    }
    finish(helper);
    CHECK_EQ(changed, ROUNDS);
    return 0;
}

TEST(select_moment, an_ordered_select_does_not_overlook_an_earlier_case) {
    int fd[2];
    open_far_pair(SOCK_STREAM, fd);
    CHECK_EQ(in_order(fd), 0);
    CHECK_EQ(run_on(1, in_order, fd), 0);
    CHECK_EQ(close(fd[0]), 0);
    CHECK_EQ(close(fd[1]), 0);
}
