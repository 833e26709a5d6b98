/* SPDX-License-Identifier: MIT */
/* Semaphores whose users take several units at once. */
#include "api/common.h"
#include "api/fake.h"

static weft_sem sem;
static atomic_int here, served[8];

static void reset(uint32_t units) {
    CHECK_EQ(weft_sem_init(&sem, units), 0);
    atomic_store(&here, 0);
    for (size_t i = 0; i < COUNT(served); i++) atomic_store(&served[i], 0);
}

static void at_once(void) {
    reset(3);
    CHECK_EQ(weft_sem_available(&sem), 3);
    CHECK_EQ(weft_sem_acquire_n(&sem, 2, WEFT_FOREVER), 0);
    CHECK_EQ(weft_sem_available(&sem), 1);
    CHECK_EQ(weft_sem_acquire_n(&sem, 2, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_sem_acquire_n(&sem, 2, weft_at(1)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_sem_acquire_n(&sem, 2, weft_after(200 * WEFT_US)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_sem_available(&sem), 1); /* nothing was taken, and nobody waits */
    CHECK_EQ(weft_sem_acquire_n(&sem, 1, weft_at(1)), 0);
    CHECK_EQ(weft_sem_acquire_n(&sem, 0, WEFT_FOREVER), 0);
    CHECK_EQ(weft_sem_acquire_n(&sem, WEFT_SEM_MAX + 1, WEFT_POLL), WEFT_EINVAL);
    CHECK_EQ(weft_sem_acquire_n(&sem, UINT32_MAX, WEFT_FOREVER), WEFT_EINVAL);
    weft_sem_release_n(&sem, WEFT_SEM_MAX);
    CHECK_EQ(weft_sem_available(&sem), WEFT_SEM_MAX);
    CHECK_EQ(weft_sem_acquire_n(&sem, WEFT_SEM_MAX, WEFT_POLL), 0);
    CHECK_EQ(weft_sem_available(&sem), 0);
    weft_sem_destroy(&sem);
}

static int at_once_in_task(void *arg) {
    (void)arg;
    at_once();
    return 0;
}

TEST(sem_units, all_at_once_or_none) {
    at_once(); /* on a plain thread, without a runtime */
    run_each(at_once_in_task);
}

struct wish {
    int who;
    uint32_t units;
    weft_deadline deadline;
    int result;
};

static int want(void *arg) {
    struct wish w = *(struct wish *)arg;
    atomic_fetch_add(&here, 1);
    CHECK_EQ(weft_sem_acquire_n(&sem, w.units, w.deadline), w.result);
    atomic_store(&served[w.who], 1);
    return 0;
}

/* Waits, as the next one in the queue. */
static void queue_up(weft_scope *s, struct wish w) {
    int n = atomic_load(&here);
    CHECK_EQ(weft_spawn_with(s, want, w), 0);
    task_wait_parked(&here, n + 1);
}

static void check_served(int n) {
    for (int i = 0; i < 100; i++) weft_yield();
    for (int i = 0; i < 3; i++) CHECK_EQ(atomic_load(&served[i]), i < n);
}

static int keep_the_order(void *arg) {
    weft_scope s;
    (void)arg;
    reset(3);
    weft_scope_begin(&s, NULL);
    queue_up(&s, (struct wish){0, 5, WEFT_FOREVER, 0});
    CHECK_EQ(weft_sem_try(&sem), WEFT_EAGAIN); /* they are for the first one */
    CHECK_EQ(weft_sem_available(&sem), 0);
    CHECK_EQ(weft_sem_acquire(&sem, WEFT_POLL), WEFT_EAGAIN);
    queue_up(&s, (struct wish){1, 1, WEFT_FOREVER, 0});
    queue_up(&s, (struct wish){2, 2, WEFT_FOREVER, 0});
    weft_sem_release(&sem);
    check_served(0);
    weft_sem_release(&sem);
    check_served(1);
    weft_sem_release_n(&sem, 2);
    check_served(2);
    weft_sem_release_n(&sem, 4);
    check_served(3);
    CHECK_EQ(weft_sem_available(&sem), 3);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

TEST(sem_units, the_first_waiter_is_not_overtaken) { CHECK_EQ(run_on(1, keep_the_order, NULL), 0); }

static int give_up_first(void *arg) {
    weft_scope s;
    (void)arg;
    reset(3);
    weft_scope_begin(&s, NULL);
    queue_up(&s, (struct wish){0, 5, weft_after(HOUR), WEFT_ETIMEDOUT});
    queue_up(&s, (struct wish){1, 1, WEFT_FOREVER, 0});
    queue_up(&s, (struct wish){2, 2, WEFT_FOREVER, 0});
    check_served(0);
    weft__clock_advance(HOUR);
    let_others_run();
    CHECK_EQ(weft_scope_end(&s), 0); /* what the first one left is enough for both */
    CHECK_EQ(weft_sem_available(&sem), 0);
    weft_sem_release_n(&sem, 3);
    CHECK_EQ(weft_sem_available(&sem), 3);
    return 0;
}

TEST(sem_units, one_that_gives_up_leaves_its_units_to_the_next) { run_fake(give_up_first); }

static int cancel_first(void *arg) {
    weft_scope s, doomed;
    (void)arg;
    reset(3);
    weft_scope_begin(&s, NULL);
    weft_scope_begin(&doomed, NULL);
    queue_up(&doomed, (struct wish){0, 5, WEFT_FOREVER, WEFT_ECANCELED});
    queue_up(&s, (struct wish){1, 3, WEFT_FOREVER, 0});
    weft_scope_cancel(&doomed);
    CHECK_EQ(weft_scope_end(&doomed), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_sem_available(&sem), 0);
    return 0;
}

TEST(sem_units, one_that_is_cancelled_leaves_its_units_to_the_next) { run_each(cancel_first); }

static int ask_cancelled(void *arg) {
    weft_scope s;
    (void)arg;
    reset(2);
    weft_scope_begin(&s, NULL);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_sem_acquire_n(&sem, 2, WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_sem_acquire_n(&sem, 2, weft_at(1)), WEFT_ECANCELED);
    CHECK_EQ(weft_sem_acquire_n(&sem, 3, WEFT_POLL), WEFT_ECANCELED);
    CHECK_EQ(weft_sem_acquire_n(&sem, 0, WEFT_FOREVER), 0);
    CHECK_EQ(weft_sem_available(&sem), 2);
    CHECK_EQ(weft_sem_acquire_n(&sem, 2, WEFT_POLL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

TEST(sem_units, in_a_cancelled_scope_only_polling_takes) { run_each(ask_cancelled); }

static int too_many(void *arg) {
    (void)arg;
    CHECK_EQ(weft_sem_init(&sem, WEFT_SEM_MAX - 1), 0);
    weft_sem_release_n(&sem, 2);
    return 0;
}

TEST(sem_units, too_many_abort) { CHECK_DIES(too_many, "2 more are too many"); }
