/* SPDX-License-Identifier: MIT */
/* Channels, selects, locks, tasks, threads, sleeps. */
#include "try_once.h"

static weft_chan *c, *other, *odd;
static weft_mutex m;
static weft_rwlock rw;
static weft_cond cond;
static weft_sem sem;
static weft_waitgroup group;
static weft_barrier barrier;
static weft_task *task, *running;
static weft_thread *thread, *running_thread;
static weft_chan *go_on;
static int v;

/* ---- channels and select ---- */

static void end_channels(void) {
    weft_chan_unref(c);
    weft_chan_unref(other);
    c = other = NULL;
}
static void make_empty(void) {
    c = weft_chan_new(sizeof v, 1);
    other = weft_chan_new(sizeof v, 0);
    CHECK(c && other);
}
static void make_one(void) {
    make_empty();
    CHECK_EQ(weft_chan_try_send(c, &v), 0);
}
static ssize_t use_send(weft_deadline d) { return weft_chan_send(c, &v, d); }
static ssize_t use_recv(weft_deadline d) { return weft_chan_recv(c, &v, d); }
static ssize_t use_select_one(weft_deadline d) { return weft_select(d, weft_on_recv(c, &v, NULL)); }
static ssize_t use_select_two(weft_deadline d) {
    bool open;
    return weft_select(d, weft_on_recv(other, &v, NULL), weft_on_recv(c, &v, &open));
}
static ssize_t use_select_send(weft_deadline d) { return weft_select(d, weft_on_send(other, &v), weft_on_send(c, &v)); }
static ssize_t use_select_large(weft_deadline d) {
    weft_case k[40];
    for (int i = 0; i < 40; i++) k[i] = i == 33 ? weft_on_recv(c, &v, NULL) : weft_on_send(other, &v);
    return weft_selectv(k, 40, d);
}
static ssize_t use_select_none(weft_deadline d) { return weft_select(d, weft_on_recv(NULL, NULL, NULL)); }

/* An element behind the first block of the buffer: a select needs more than the lock to take it. */
enum { MANY = 257 }; /* a block has 256 places */
static void make_odd(void) {
    make_empty();
    odd = weft_chan_new_opts(sizeof v, &(weft_chan_opts){.kind = WEFT_CHAN_UNLIMITED});
    CHECK(odd);
    int n = 0, mark = 0;
    for (; n < MANY; n++) CHECK_EQ(weft_chan_try_send(odd, &n), 0);
    for (; n > 1; n--) CHECK_EQ(weft_chan_try_recv(odd, &mark), 0);
}
static ssize_t use_select_odd(weft_deadline d) {
    return weft_select(d, weft_on_recv(other, &v, NULL), weft_on_recv(odd, &v, NULL));
}
static void end_odd(void) {
    weft_chan_unref(odd);
    end_channels();
}

/* ---- locks ---- */

static ssize_t use_mutex(weft_deadline d) { return weft_mutex_lock_until(&m, d); }
static void end_mutex(void) { weft_mutex_unlock(&m); }
static ssize_t use_wrlock(weft_deadline d) { return weft_rwlock_wrlock_until(&rw, d); }
static ssize_t use_rdlock(weft_deadline d) { return weft_rwlock_rdlock_until(&rw, d); }
static void spoil_rdlock(void) {
    weft_rwlock_rdunlock(&rw);
    weft_rwlock_wrlock(&rw);
}
static void end_rwlock(void) { weft_rwlock_wrunlock(&rw); }
static void make_cond(void) { weft_mutex_lock(&m); }
static ssize_t use_cond(weft_deadline d) { return weft_cond_wait(&cond, &m, d); }
static void make_sem(void) { CHECK_EQ(weft_sem_init(&sem, 1), 0); }
static ssize_t use_sem(weft_deadline d) { return weft_sem_acquire(&sem, d); }
static ssize_t use_group(weft_deadline d) { return weft_waitgroup_wait(&group, d); }
static void spoil_group(void) { weft_waitgroup_add(&group, 1); }
static void end_group(void) { weft_waitgroup_done(&group); }
static void make_barrier(void) { CHECK_EQ(weft_barrier_init(&barrier, 1), 0); }
static ssize_t use_barrier(weft_deadline d) { return weft_barrier_wait(&barrier, d); }
static void spoil_barrier(void) { CHECK_EQ(weft_barrier_init(&barrier, 2), 0); }

/* ---- tasks and threads ---- */

static int wait_to_go_on(void *arg) {
    (void)arg;
    return weft_chan_recv(go_on, &(int){0}, WEFT_FOREVER);
}
static void make_tasks(void) {
    go_on = weft_chan_new(sizeof v, 1);
    CHECK(go_on);
    CHECK_EQ(weft_task_start(&task, return_int, as_arg(7), NULL), 0);
    CHECK_EQ(weft_task_start(&running, wait_to_go_on, NULL, NULL), 0);
}
static ssize_t result_of(int err, int r) { return err ? err : r; }
static ssize_t use_join(weft_deadline d) {
    int r = 0, err = weft_task_join(task, &r, d);
    return result_of(err, r);
}
static ssize_t use_any(weft_deadline d) {
    int r = 0, err = weft_task_any(&task, 1, NULL, &r, d);
    return result_of(err, r);
}
static ssize_t use_select_task(weft_deadline d) {
    int r = 0, k = weft_select(d, weft_on_recv(go_on, NULL, NULL), weft_on_task(task, &r));
    return k < 0 ? k : r;
}
static void spoil_tasks(void) { task = running; }
static void end_tasks(void) {
    CHECK_EQ(weft_chan_try_send(go_on, &v), 0);
    CHECK_EQ(weft_task_join(running, NULL, WEFT_FOREVER), 0);
    weft_chan_unref(go_on);
}

static weft_scope children;
static void make_children(void) {
    go_on = weft_chan_new(sizeof v, 1);
    weft_scope_begin(&children, &(weft_scope_opts){.results = true});
    CHECK_EQ(weft_spawn(&children, wait_to_go_on, NULL), 0);
    CHECK_EQ(weft_spawn(&children, return_int, as_arg(7)), 0);
}
static ssize_t use_children(weft_deadline d) {
    int r = 0, err = weft_scope_wait_any(&children, &r, d);
    return result_of(err, r);
}
static void end_children(void) {
    CHECK_EQ(weft_chan_try_send(go_on, &v), 0);
    CHECK_EQ(weft_scope_end(&children), 0);
    weft_chan_unref(go_on);
}

static void make_threads(void) {
    go_on = weft_chan_new(sizeof v, 1);
    CHECK(go_on);
    CHECK_EQ(weft_thread_start(&thread, return_int, as_arg(7), NULL), 0);
    CHECK_EQ(weft_thread_start(&running_thread, wait_to_go_on, NULL, NULL), 0);
}
static ssize_t use_thread(weft_deadline d) {
    int r = 0, err = weft_thread_join(thread, &r, d);
    return result_of(err, r);
}
static void spoil_threads(void) { thread = running_thread; }
static void end_threads(void) {
    CHECK_EQ(weft_chan_try_send(go_on, &v), 0);
    CHECK_EQ(weft_thread_join(running_thread, NULL, WEFT_FOREVER), 0);
    weft_chan_unref(go_on);
}

/* The one thread that there is for bound tasks. */
static atomic_int bound;
static int hold_thread(void *arg) {
    if (wait_to_go_on(arg)) return 1;
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    atomic_store(&bound, 1);
    return wait_to_go_on(arg);
}
static void make_bind(void) {
    go_on = weft_chan_new(sizeof v, 1);
    CHECK(go_on);
    atomic_store(&bound, 0);
    CHECK_EQ(weft_task_start(&running, hold_thread, NULL, NULL), 0);
}
static ssize_t use_bind(weft_deadline d) { return weft_bind(d); }
static void spoil_bind(void) {
    weft_unbind();
    CHECK_EQ(weft_chan_try_send(go_on, &v), 0);
    task_wait(&bound, 1);
}

static ssize_t use_block(weft_deadline d) { return weft_block(return_int, as_arg(7), d); }
static ssize_t use_sleep(weft_deadline d) { return weft_sleep(d); }

static const struct op ops[] = {
    {"weft_chan_send", make_empty, use_send, 0, NULL, end_channels, 0},
    {"weft_chan_recv", make_one, use_recv, 0, NULL, end_channels, 0},
    {"a select with one case", make_one, use_select_one, 0, NULL, end_channels, 0},
    {"a select with two cases", make_one, use_select_two, 1, NULL, end_channels, 0},
    {"a select that sends", make_empty, use_select_send, 1, NULL, end_channels, 0},
    {"a select with 40 cases", make_one, use_select_large, 33, NULL, end_channels, 0},
    {"a select without an enabled case", NULL, use_select_none, 0, NULL, NULL, NEVER},
    {"a select that takes from an unlimited channel", make_odd, use_select_odd, 1, NULL, end_odd, 0},
    {"weft_mutex_lock_until", NULL, use_mutex, 0, NULL, end_mutex, 0},
    {"weft_rwlock_wrlock_until", NULL, use_wrlock, 0, NULL, end_rwlock, 0},
    {"weft_rwlock_rdlock_until", NULL, use_rdlock, 0, spoil_rdlock, end_rwlock, 0},
    {"weft_cond_wait", make_cond, use_cond, 0, NULL, end_mutex, NEVER},
    {"weft_sem_acquire", make_sem, use_sem, 0, NULL, NULL, 0},
    {"weft_waitgroup_wait", NULL, use_group, 0, spoil_group, end_group, 0},
    {"weft_barrier_wait", make_barrier, use_barrier, 1, spoil_barrier, NULL, 0},
    {"weft_task_join", make_tasks, use_join, 7, spoil_tasks, end_tasks, SOON | RUNNING},
    {"weft_task_any", make_tasks, use_any, 7, spoil_tasks, end_tasks, SOON | RUNNING},
    {"a select with a task", make_tasks, use_select_task, 7, spoil_tasks, end_tasks, SOON | RUNNING},
    {"weft_scope_wait_any", make_children, use_children, 7, NULL, end_children, SOON | RUNNING},
    {"weft_thread_join", make_threads, use_thread, 7, spoil_threads, end_threads, SOON},
    {"weft_bind", make_bind, use_bind, 0, spoil_bind, end_tasks, BY_TASK | RUNNING},
    {"weft_block", NULL, use_block, 0, NULL, NULL, NEVER | BY_TASK | RUNNING},
    {"weft_block on a plain thread", NULL, use_block, 7, NULL, NULL, ALWAYS | BY_THREAD},
    {"weft_sleep", NULL, use_sleep, 0, NULL, NULL, ALWAYS},
};

TEST(try_once, a_cancelled_task_does_what_can_be_done_at_once) { check_tasks(ops, COUNT(ops), CANCELLED); }
TEST(try_once, a_task_does_what_can_be_done_at_once) { check_tasks(ops, COUNT(ops), FREE); }
TEST(try_once, a_shielded_task_does_what_can_be_done_at_once) { check_tasks(ops, COUNT(ops), SHIELDED); }
TEST(try_once, a_plain_thread_beside_a_runtime_likewise) { check_thread(ops, COUNT(ops), true); }
TEST(try_once, a_plain_thread_without_a_runtime_likewise) { check_thread(ops, COUNT(ops), false); }

/* ---- what takes no deadline does not look ---- */

static int no_deadline(void *arg) {
    (void)arg;
    weft_scope s;
    weft_once once = {{0}};
    CHECK_EQ(weft_sem_init(&sem, 1), 0);
    weft_scope_begin(&s, NULL);
    weft_scope_cancel(&s);
    weft_mutex_lock(&m);
    CHECK_EQ(weft_mutex_trylock(&m), WEFT_EAGAIN);
    weft_mutex_unlock(&m);
    CHECK_EQ(weft_mutex_trylock(&m), 0);
    weft_mutex_unlock(&m);
    weft_rwlock_wrlock(&rw);
    CHECK_EQ(weft_rwlock_tryrdlock(&rw), WEFT_EAGAIN);
    CHECK_EQ(weft_rwlock_trywrlock(&rw), WEFT_EAGAIN);
    weft_rwlock_unlock(&rw);
    CHECK_EQ(weft_rwlock_tryrdlock(&rw), 0);
    weft_rwlock_unlock(&rw);
    CHECK_EQ(weft_sem_try(&sem), 0);
    CHECK_EQ(weft_sem_try(&sem), WEFT_EAGAIN);
    CHECK_EQ(weft_once_run(&once, return_int, as_arg(3)), 3);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}
TEST(try_once, a_lock_without_a_deadline_never_looks_at_the_scope) { run_each(no_deadline); }

/* ---- what it is for ---- */

/* A pool made of a channel: what was taken out is given back by who is cancelled while it has it. */
static int borrow(void *pool) {
    CHECK_EQ(weft_chan_recv(pool, &v, WEFT_FOREVER), 0);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_chan_try_send(pool, &v), 0);
    return 0;
}
static int give_back(void *arg) {
    (void)arg;
    weft_scope s;
    weft_chan *pool = weft_chan_new(sizeof v, 1);
    CHECK_EQ(weft_chan_send(pool, &v, WEFT_FOREVER), 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, borrow, pool), 0);
    while (weft_chan_len(pool)) weft_yield();
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_chan_len(pool), 1);
    weft_chan_unref(pool);
    return 0;
}
TEST(try_once, a_pool_made_of_a_channel_gets_its_resource_back) { run_each(give_back); }
