/* SPDX-License-Identifier: MIT */
/* Every operation of a running runtime with the nth allocation or system call failing: an error is returned, nothing is half
 * done, and the same operation works afterwards. */
#include "fault/common.h"

enum { CALLS = 40 }; /* operations make fewer; what comes after them is some worker's wait */

static atomic_int ran;

static int count_run(void *arg) {
    (void)arg;
    atomic_fetch_add(&ran, 1);
    return 0;
}

static int count_and_yield(void *arg) {
    weft_yield();
    return count_run(arg);
}

/* An operation: does it once, checks that all is well for the result it got, and returns that. It calls disarm() before it waits
 * for anything that needs the memory it may have been refused. */
typedef int op(void);

static void disarm(void) { weft__fault_arm(0, false); }

static const weft_scope_opts keep_going = {.deadline = {0}, .on_error = WEFT_KEEP_GOING};

/* Spawns n times by `spawn_one`; everything accepted must run, the rest be reported. */
static int spawn_all(int n, int (*spawn_one)(weft_scope *)) {
    weft_scope s;
    int accepted = 0, error = 0;
    atomic_store(&ran, 0);
    weft_scope_begin(&s, &keep_going);
    for (int i = 0; i < n; i++) {
        int rc = spawn_one(&s);
        accepted += rc == 0;
        error = error ? error : rc;
    }
    disarm();
    CHECK_EQ(weft_scope_end(&s), error);
    CHECK_EQ(atomic_load(&ran), accepted);
    CHECK_EQ(accepted == n, error == 0);
    return error;
}

static int spawn_plain(weft_scope *s) { return weft_spawn(s, count_run, NULL); }

static int op_spawn(void) { return spawn_all(500, spawn_plain); }

static int spawn_parking(weft_scope *s) { return weft_spawn(s, count_and_yield, NULL); }

static int op_spawn_parking(void) { return spawn_all(300, spawn_parking); }

static int spawn_big_copy(weft_scope *s) {
    char big[4096] = "";
    return weft_spawn_copy(s, count_run, big, sizeof big);
}

static int op_spawn_copy(void) { return spawn_all(3, spawn_big_copy); }

static int spawn_formatted(weft_scope *s) {
    return weft_spawnf(s, count_run, NULL, "a name of some length, number %d, %0200d", 1, 2);
}

static int op_spawnf(void) { return spawn_all(3, spawn_formatted); }

static int spawn_named_big(weft_scope *s) {
    weft_task_opts o = {.name = "large", .stack_size = 8 << 20};
    return weft_spawn_opts(s, count_and_yield, NULL, &o);
}

static int op_spawn_opts(void) { return spawn_all(3, spawn_named_big); }

static int op_cancel_all(void) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, wait_for_ever, NULL), 0);
    int rc = spawn_formatted(&s);
    disarm();
    if (rc) /* a refused child is a failed child: it ends the others */
        CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    else
        weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), rc);
    return rc;
}

static int op_go_copy(void) {
    char big[4096] = "";
    atomic_store(&ran, 0);
    int rc = weft_go_copy(count_run, big, sizeof big);
    disarm();
    if (rc == 0) task_wait(&ran, 1);
    return rc;
}

static int op_task_start(void) {
    weft_task *t = NULL;
    weft_task_opts o = {.name = "started", .stack_size = 0};
    int result = 0, rc = weft_task_start(&t, return_int, as_arg(5), &o);
    disarm();
    if (rc) return rc;
    CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, 5);
    return 0;
}

static int op_chan_new(void) {
    weft_chan *c = weft_chan_new(24, 100);
    disarm();
    if (!c) return WEFT_ENOMEM;
    char v[24] = "x";
    CHECK_EQ(weft_chan_send(c, v, WEFT_FOREVER), 0);
    CHECK_EQ(weft_chan_recv(c, v, WEFT_FOREVER), 0);
    weft_chan_unref(c);
    return 0;
}

static weft_chan *ready, *silent; /* one with room for an element, one nobody uses */

/* Each element that was accepted is there, in order; the others were refused. */
static int op_buf(void) {
    static char foreign[8];
    weft_buf *b = weft_buf_new(100), *w = weft_buf_wrap(foreign, sizeof foreign, NULL, NULL);
    weft_buf *s = b ? weft_buf_slice(b, 10, 10) : NULL;
    weft_buf_unref(b ? weft_buf_ref(b) : NULL);
    disarm();
    int rc = b && w && s ? 0 : WEFT_ENOMEM;
    weft_buf_unref(b);
    weft_buf_unref(w);
    if (s) memset(weft_buf_data(s), 1, weft_buf_len(s)); /* it has kept the bytes */
    weft_buf_unref(s);
    return rc;
}
static int op_chan_unlimited(void) {
    weft_chan_opts o = {.kind = WEFT_CHAN_UNLIMITED, .name = "without a limit"};
    weft_chan *c = weft_chan_new_opts(1000, &o);
    if (!c) return WEFT_ENOMEM;
    int v[250], error = 0, n = 0;
    for (int i = 0; i < 30; i++) {
        v[0] = n;
        int rc = i % 2 ? weft_chan_send(c, v, WEFT_FOREVER)
                       : weft_select(WEFT_FOREVER, weft_on_send(c, v), weft_on_recv(silent, v, NULL));
        if (rc == 0)
            n++;
        else
            error = rc;
    }
    CHECK_EQ(weft_chan_len(c), (size_t)n);
    for (int i = 0; i < n; i++) {
        CHECK_EQ(weft_chan_recv(c, v, WEFT_FOREVER), 0);
        CHECK_EQ(v[0], i);
    }
    weft_chan_unref(c);
    return error;
}

static int undelivered;
static void count_undelivered(void *elem, void *arg) {
    (void)elem, (void)arg;
    undelivered++;
}

static int op_chan_latest(void) {
    weft_chan_opts o = {.kind = WEFT_CHAN_LATEST, .capacity = 2, .on_undelivered = count_undelivered};
    weft_chan *c = weft_chan_new_opts(1000, &o);
    if (!c) return WEFT_ENOMEM;
    int v[250] = {0}, n = 0;
    undelivered = 0;
    for (int i = 0; i < 5; i++) n += weft_chan_send(c, v, WEFT_FOREVER) == 0;
    CHECK_EQ(n, 5); /* the room for the one that gives way has been there from the beginning */
    weft_chan_unref(c);
    CHECK_EQ(undelivered, 5);
    return 0;
}

static int select_among(int n, bool ordered, weft_deadline deadline) {
    weft_case k[64];
    int v = 3;
    for (int i = 0; i < n; i++) k[i] = weft_on_recv(silent, &v, NULL);
    if (!deadline.ns) k[n / 2] = weft_on_send(ready, &v);
    int rc = ordered ? weft_selectv_ordered(k, (size_t)n, deadline) : weft_selectv(k, (size_t)n, deadline);
    disarm();
    CHECK_EQ(weft_chan_len(ready), rc == n / 2 ? 1 : 0); /* done, or not done */
    if (rc == n / 2) CHECK_EQ(weft_chan_recv(ready, &v, WEFT_FOREVER), 0);
    CHECK_EQ(v, 3);
    return rc >= 0 || rc == WEFT_ETIMEDOUT ? 0 : rc;
}

static int op_select_32(void) { return select_among(32, false, WEFT_FOREVER); }

static int op_select_32_ordered(void) { return select_among(32, true, WEFT_FOREVER); }

static int op_select_few_ordered(void) { return select_among(4, true, WEFT_FOREVER); }

static int op_select_64_parked(void) { return select_among(64, false, weft_after(50 * WEFT_US)); }

static int op_select_16_parked(void) { return select_among(16, false, weft_after(50 * WEFT_US)); }

static int op_select_few(void) { return select_among(4, false, WEFT_FOREVER); }

static int op_waits(void) {
    int v = 1;
    CHECK_EQ(weft_chan_recv(silent, &v, weft_after(20 * WEFT_US)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_sleep_for(20 * WEFT_US), 0);
    CHECK_EQ(weft_chan_send(ready, &v, WEFT_FOREVER), 0);
    CHECK_EQ(weft_chan_recv(ready, &v, WEFT_FOREVER), 0);
    disarm();
    return 0;
}

static int op_scope_deadline(void) {
    weft_scope s;
    weft_scope_opts o = {.deadline = weft_after(50 * WEFT_US), .on_error = WEFT_KEEP_GOING};
    weft_scope_begin(&s, &o);
    int rc = weft_spawn(&s, wait_for_ever, NULL);
    disarm();
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    int end = weft_scope_end(&s);
    CHECK_EQ(end, rc && rc != WEFT_ECANCELED ? rc : WEFT_ETIMEDOUT);
    return rc == WEFT_ECANCELED ? 0 : rc;
}

static int op_shield(void) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    weft_scope_cancel(&s);
    int rc = 0, n = 0;
    for (; n < 400 && rc == 0; n++) rc = weft_shield_begin(n % 2 ? WEFT_FOREVER : weft_after(HOUR));
    disarm();
    if (rc) n--;
    CHECK_EQ(weft_cancelled(), n == 0);
    while (n-- > 0) weft_shield_end();
    CHECK_EQ(weft_cancelled(), 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    return rc;
}

/* A scope that gets no memory is cancelled from the start. */
static int op_limit(void) {
    weft_scope s;
    int accepted = 0, rc = 0;
    atomic_store(&ran, 0);
    weft_scope_begin(&s, &(weft_scope_opts){.limit = 3, .results = true, .on_error = WEFT_KEEP_GOING});
    for (int i = 0; i < 100; i++) {
        int r = weft_spawn(&s, count_run, NULL);
        CHECK(r == 0 || r == WEFT_ENOMEM || (r == WEFT_ECANCELED && weft_cancel_cause() == WEFT_ENOMEM));
        accepted += r == 0;
        rc = rc ? rc : r;
    }
    disarm();
    CHECK_EQ(weft_scope_end(&s), rc ? WEFT_ENOMEM : 0);
    CHECK_EQ(atomic_load(&ran), accepted);
    return rc ? WEFT_ENOMEM : 0;
}

static void count_deferred(void *arg) { (void)arg, (void)count_run(NULL); }

static int op_defer(void) {
    weft_scope s;
    int rc = 0, n = 0;
    atomic_store(&ran, 0);
    weft_scope_begin(&s, NULL);
    for (; n < 3000 && rc == 0; n++) rc = weft_scope_defer(&s, count_deferred, NULL);
    disarm();
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&ran), rc ? n - 1 : n);
    return rc;
}

static int op_task_any(void) {
    weft_task *t[20] = {NULL};
    size_t which;
    int result;
    CHECK_EQ(weft_task_start(&t[7], return_int, as_arg(5), NULL), 0);
    int rc = weft_task_any(t, 20, &which, &result, WEFT_FOREVER);
    disarm();
    if (rc) {
        CHECK_EQ(weft_task_join(t[7], &result, WEFT_FOREVER), 0); /* the handle is still good */
        return rc;
    }
    CHECK_EQ(which, 7);
    CHECK_EQ(result, 5);
    return 0;
}

static void count_part(size_t lo, size_t hi, void *arg) {
    (void)arg;
    atomic_fetch_add(&ran, (int)(hi - lo));
}

static int op_parallel_for(void) {
    atomic_store(&ran, 0);
    CHECK_EQ(weft_parallel_for(2000, 1, count_part, NULL), 0); /* what gets no task is done all the same */
    disarm();
    CHECK_EQ(atomic_load(&ran), 2000);
    return 0;
}

static int op_call(void) {
    int rc = weft_call(return_int, as_arg(7), weft_after(HOUR));
    disarm();
    CHECK(rc == 7 || rc < 0);
    return rc == 7 ? 0 : rc;
}

/* Results come one by one; a child that was refused counts as one that failed. */
static int op_wait_any(void) {
    weft_scope s;
    int rc = 0, result = 0, accepted = 0;
    weft_scope_begin(&s, &(weft_scope_opts){.results = true, .on_error = WEFT_KEEP_GOING});
    for (int i = 0; i < 5 && rc == 0; i++) {
        rc = weft_spawn(&s, return_int, as_arg(1));
        accepted += rc == 0;
    }
    disarm();
    for (int i = 0; i < accepted; i++) {
        CHECK_EQ(weft_scope_wait_any(&s, &result, WEFT_FOREVER), 0);
        CHECK_EQ(result, 1);
    }
    if (rc) weft_scope_cancel(&s);
    (void)weft_scope_end(&s);
    return rc == WEFT_ECANCELED ? WEFT_ENOMEM : rc; /* its own memory was refused: cancelled from the start */
}

/* A wait whose deadline gets no memory has one all the same. */
static int op_wait(void) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    weft_scope_set_deadline(&s, weft_after(HOUR));
    int rc = weft_spawn(&s, wait_for_ever, NULL);
    CHECK_EQ(weft_scope_wait(&s, weft_after(WEFT_MS)), rc ? 0 : WEFT_ETIMEDOUT);
    disarm();
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_wait(&s, weft_after(HOUR)), 0);
    CHECK_EQ(weft_scope_end(&s), rc);
    return rc;
}

static int op_block_form(void) {
    int rc = 0;
    atomic_store(&ran, 0);
    WEFT_SCOPE(s) { rc = weft_spawn(&s, count_run, NULL); }
    disarm();
    CHECK_EQ(atomic_load(&ran), rc == 0);
    return rc;
}

static int op_ticker(void) {
    weft_ticker k = {.weft__chan = NULL};
    weft_chan *c = weft_chan_new(sizeof(int64_t), 1);
    if (!c) return WEFT_ENOMEM;
    int64_t at = 0;
    int rc = weft_ticker_start(&k, WEFT_US, c);
    disarm(); /* a tick needs a task, and may wait for its memory */
    if (rc == 0) CHECK_EQ(weft_chan_recv(c, &at, WEFT_FOREVER), 0);
    weft_ticker_stop(&k);
    weft_chan_unref(c);
    return rc;
}

static int op_pin(void) {
    weft_pin();
    weft_yield();
    weft_unpin();
    return 0;
}

/* What people look at is shorter for want of memory, and no less true. */
static int op_look(void) {
    FILE *f = fopen("/dev/null", "w");
    CHECK(f);
    weft_dump(f);
    weft_stack_report(f);
    disarm();
    fclose(f);
    return 0;
}

static int op_task_cancel(void) {
    weft_task *t = NULL;
    int result = 0, rc = weft_task_start(&t, wait_for_ever, NULL, NULL);
    if (rc) return rc;
    weft_task_cancel(t);
    disarm();
    CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, WEFT_ECANCELED);
    CHECK_EQ(weft_task_start(&t, return_int, NULL, NULL), 0);
    weft_task_unref(t);
    return 0;
}

static const struct {
    const char *name;
    op *fn;
    bool may_fail; /* it needs memory; the others must not be disturbed at all */
} ops[] = {
    {"spawn", op_spawn, true},
    {"spawn, parking", op_spawn_parking, true},
    {"spawn_copy", op_spawn_copy, true},
    {"spawnf", op_spawnf, true},
    {"spawn_opts", op_spawn_opts, true},
    {"spawnf, cancelling", op_cancel_all, true},
    {"go_copy", op_go_copy, true},
    {"task_start", op_task_start, true},
    {"chan_new", op_chan_new, true},
    {"buffers", op_buf, true},
    {"an unlimited channel", op_chan_unlimited, true},
    {"a channel of the latest", op_chan_latest, true},
    {"select of 16, parked", op_select_16_parked, false},
    {"select of 32", op_select_32, true},
    {"select of 64, parked", op_select_64_parked, true},
    {"select of 4", op_select_few, false},
    {"ordered select of 4", op_select_few_ordered, false},
    {"ordered select of 32", op_select_32_ordered, true},
    {"waits", op_waits, false},
    {"scope with a deadline", op_scope_deadline, true},
    {"shields", op_shield, true},
    {"scope with a limit", op_limit, true},
    {"deferred functions", op_defer, true},
    {"the first of several tasks", op_task_any, true},
    {"loop", op_parallel_for, false},
    {"call under a deadline", op_call, true},
    {"results one by one", op_wait_any, true},
    {"waiting without ending", op_wait, true},
    {"scope as a block", op_block_form, true},
    {"ticker", op_ticker, true},
    {"pin", op_pin, false},
    {"dump and report", op_look, false},
    {"cancelling a task", op_task_cancel, true},
};

static void run_op(size_t i, bool sticky) {
    CHECK_MSG(ops[i].fn() == 0, "%s fails without a fault", ops[i].name);
    for (long n = 1; n <= CALLS; n += n > 8 && test_slow_tools() > 10 ? 8 : 1) {
        weft__fault_arm(n, sticky);
        int rc = ops[i].fn();
        disarm();
        CHECK_MSG(rc == 0 || (ops[i].may_fail && is_fault(rc)), "%s, call %ld failed%s: gave %d", ops[i].name, n,
                  sticky ? " and all after" : "", rc);
        rc = ops[i].fn();
        CHECK_MSG(rc == 0, "%s, after call %ld failed%s: gives %d", ops[i].name, n, sticky ? " and all after" : "", rc);
    }
}

/* A plain thread that waits while every call fails would be interrupted for ever; the kernel does not do that. */
static bool waits_while_armed(op *fn) {
    return fn == op_waits || fn == op_select_64_parked || fn == op_select_16_parked || fn == op_limit || fn == op_task_any ||
           fn == op_parallel_for || fn == op_wait;
}

static void run_all(bool in_task) {
    ready = weft_chan_new(sizeof(int), 1);
    silent = weft_chan_new(sizeof(int), 0);
    CHECK(ready && silent);
    for (size_t i = 0; i < COUNT(ops); i++) {
        if (!in_task && ops[i].fn == op_go_copy) continue; /* waits as only a task can */
        run_op(i, false);
        if (in_task || !waits_while_armed(ops[i].fn)) run_op(i, true);
    }
    weft_chan_unref(ready);
    weft_chan_unref(silent);
}

static int run_in_task(void *arg) {
    (void)arg;
    run_all(true);
    return 0;
}

TEST(fault_ops, every_operation_fails_cleanly_in_a_task) {
    run_each(run_in_task);
    struct holdings before = holdings();
    run_each(run_in_task);
    check_holdings(before, 10);
}

TEST(fault_ops, every_operation_fails_cleanly_in_a_plain_thread) {
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        run_all(false);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

/* ---- a refusal is really an error ---- */

static int refuse_each(void *arg) {
    (void)arg;
    weft_scope s;
    char big[4096] = "";
    weft_case k[40];
    weft_task *t = NULL;
    int v = 0;
    for (int i = 0; i < 40; i++) k[i] = weft_on_recv(silent, &v, NULL);
    weft_scope_begin(&s, &keep_going);
    weft__fault_arm(1, true);
    weft_chan *c = weft_chan_new(8, 8);
    int copy = weft_spawn_copy(&s, count_run, big, sizeof big);
    int named = spawn_formatted(&s);
    int started = weft_task_start(&t, return_int, NULL, &(weft_task_opts){.name = "x", .stack_size = 0});
    int chosen = weft_selectv(k, COUNT(k), weft_after(HOUR));
    disarm();
    CHECK(!c);
    CHECK_EQ(copy, WEFT_ENOMEM);
    CHECK_EQ(named, 0); /* names and handles come from memory that is there already */
    CHECK_EQ(started, 0);
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    CHECK_EQ(chosen, WEFT_ENOMEM);
    CHECK_EQ(weft_scope_end(&s), WEFT_ENOMEM);
    return 0;
}

static int refuse_in_task(void *arg) {
    silent = weft_chan_new(sizeof(int), 0);
    int rc = refuse_each(arg);
    weft_chan_unref(silent);
    return rc;
}

TEST(fault_ops, without_memory_the_answer_is_enomem) { run_each(refuse_in_task); }

/* ---- no stacks to be had ---- */

static int storm_without_stacks(void *arg) {
    (void)arg;
    weft_scope s;
    int accepted = 0;
    atomic_store(&ran, 0);
    weft_scope_begin(&s, &keep_going);
    weft__fault_arm(1, true);
    for (int i = 0; i < 1000; i++) accepted += weft_spawn(&s, count_and_yield, NULL) == 0;
    weft_scope_end(&s); /* with nothing but the stacks there are: each that ends frees one */
    disarm();
    CHECK_EQ(atomic_load(&ran), accepted);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 1000; i++) CHECK_EQ(weft_spawn(&s, count_and_yield, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&ran), accepted + 1000);
    return 0;
}

TEST(fault_ops, accepted_tasks_run_although_no_more_stacks_can_be_had) { run_each(storm_without_stacks); }
