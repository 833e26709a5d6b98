/* SPDX-License-Identifier: MIT */
/* Select: tasks as cases, and what many cases cost. */
#include "api/common.h"

static weft_chan *gate;

static int wait_at_gate(void *arg) {
    int rc = weft_chan_recv(gate, NULL, WEFT_FOREVER);
    return rc == WEFT_ECANCELED ? rc : (int)(intptr_t)arg;
}

static weft_task *start(int result) {
    weft_task *t;
    CHECK_EQ(weft_task_start(&t, wait_at_gate, as_arg(result), NULL), 0);
    return t;
}

/* ---- tasks ---- */

static int tasks_and_channels(void *arg) {
    (void)arg;
    gate = weft_chan_new(0, 0);
    weft_chan *c = weft_chan_new(sizeof(int), 1);
    weft_task *t = start(17), *u = start(18);
    int rt = -1, ru = -1, x = -1, v = 5;
    weft_case k[] = {weft_on_recv(c, &x, NULL), weft_on_task(t, &rt), weft_on_task(u, &ru), weft_on_task(NULL, NULL)};
    CHECK_EQ(weft_selectv(k, COUNT(k), WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_selectv(k, COUNT(k), weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), 0);
    CHECK_EQ(weft_selectv(k, COUNT(k), WEFT_FOREVER), 0); /* the handles are still good */
    CHECK_EQ(x, 5);
    CHECK_EQ(rt, -1);
    weft_task_cancel(u);
    CHECK_EQ(weft_selectv(k, COUNT(k), WEFT_FOREVER), 2); /* waits for the end of one */
    CHECK_EQ(ru, WEFT_ECANCELED);
    k[2] = weft_on_task(NULL, NULL); /* released */
    CHECK_EQ(weft_chan_close(gate), 0);
    CHECK_EQ(weft_selectv(k, COUNT(k), WEFT_FOREVER), 1);
    CHECK_EQ(rt, 17);
    weft_chan_unref(c);
    weft_chan_unref(gate);
    return 0;
}

TEST(select_task, its_end_is_a_case) {
    run_each(tasks_and_channels);
    set_up(2);
    CHECK_EQ(tasks_and_channels(NULL), 0); /* in a plain thread */
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

static int ended_before(void *arg) {
    (void)arg;
    gate = weft_chan_new(0, 0);
    weft_chan_close(gate);
    for (int i = 0; i < 50; i++) {
        weft_task *t = start(i);
        int r = -1;
        if (i % 2) weft_yield();
        CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_task(t, i % 3 ? &r : NULL)), 0);
        CHECK_EQ(r, i % 3 ? i : -1);
    }
    weft_chan_unref(gate);
    return 0;
}

TEST(select_task, one_that_has_ended_is_ready) { run_each(ended_before); }

static weft_task *self;
static atomic_bool known;

static int select_itself(void *arg) {
    (void)arg;
    while (!atomic_load(&known)) weft_yield();
    return weft_select(WEFT_FOREVER, weft_on_task(self, NULL));
}

static int deadlock(void *arg) {
    (void)arg;
    int r = 0;
    atomic_store(&known, false);
    CHECK_EQ(weft_task_start(&self, select_itself, NULL, NULL), 0);
    atomic_store(&known, true);
    CHECK_EQ(weft_task_join(self, &r, WEFT_FOREVER), 0);
    CHECK_EQ(r, WEFT_EDEADLOCK);
    return 0;
}

TEST(select_task, waiting_for_oneself_is_refused) { run_each(deadlock); }

static int collect_all(void *arg) {
    (void)arg;
    enum { TASKS = 40 };
    gate = weft_chan_new(0, TASKS);
    weft_case k[TASKS];
    int r[TASKS], left = TASKS;
    for (int i = 0; i < TASKS; i++) k[i] = weft_on_task(start(i), &r[i]);
    for (; left; left--) {
        CHECK_EQ(weft_chan_send(gate, NULL, WEFT_FOREVER), 0); /* lets one through */
        int i = weft_selectv(k, TASKS, WEFT_FOREVER);
        CHECK(i >= 0 && i < TASKS && k[i].task);
        CHECK_EQ(r[i], i);
        k[i].task = NULL;
    }
    weft_chan_unref(gate);
    return 0;
}

TEST(select_task, all_of_many_end_one_by_one) { run_each(collect_all); }

/* ---- the cost of many cases ---- */

/* Sends something when it is asked to: with one worker, after whoever asked has begun to wait. */
static int send_when_asked(void *arg) {
    WEFT_CHAN_EACH(gate, NULL) CHECK_EQ(weft_chan_send(arg, NULL, WEFT_FOREVER), 0);
    return 0;
}

/* Instructions are not to be had everywhere, so time: ten times the cases may take 40 times as long, and 100 would be quadratic. The best of
 * several, since others use the machine too. */
static int64_t time_of(int n, bool wait) {
    weft_chan **c = calloc((size_t)n, sizeof *c);
    weft_case *k = calloc((size_t)n, sizeof *k);
    int64_t best = INT64_MAX;
    for (int i = 0; i < n; i++) {
        c[i] = weft_chan_new(0, 1);
        k[i] = weft_on_recv(c[i], NULL, NULL);
    }
    weft_scope s;
    weft_scope_begin(&s, NULL);
    gate = weft_chan_new(0, 1);
    CHECK_EQ(weft_spawn(&s, send_when_asked, c[n / 2]), 0);
    for (int t = 0; t < 100; t++) {
        if (wait) CHECK_EQ(weft_chan_send(gate, NULL, WEFT_FOREVER), 0);
        int64_t start = weft_now();
        CHECK_EQ(weft_selectv(k, (size_t)n, wait ? WEFT_FOREVER : WEFT_POLL), wait ? n / 2 : WEFT_EAGAIN);
        int64_t took = weft_now() - start;
        if (took < best) best = took;
    }
    weft_chan_close(gate);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(gate);
    for (int i = 0; i < n; i++) weft_chan_unref(c[i]);
    free(c);
    free(k);
    return best;
}

static int compare_costs(void *arg) {
    (void)arg;
    for (int wait = 0; wait < 2; wait++) {
        int64_t few = time_of(100, wait), many = time_of(1000, wait);
        printf("%s: 100 cases %lld ns, 1,000 cases %lld ns\n", wait ? "waits" : "looks", (long long)few, (long long)many);
        CHECK_LT(many, 40 * few);
    }
    return 0;
}

TEST(select_cost, ten_times_the_cases_cost_about_ten_times_as_much) {
    test_skip_under("their time is not that of the program", NULL);
    CHECK_EQ(run_on(1, compare_costs, NULL), 0);
}
