/* SPDX-License-Identifier: MIT */
/* Shields: clean-up that may wait in a cancelled scope, for as long as was said. */
#include "api/common.h"

static weft_chan *chan; /* rendezvous */

static int send_one(void *arg) {
    int v = 5;
    CHECK_EQ(weft_chan_send(arg, &v, WEFT_FOREVER), 0);
    return 0;
}

static int partner(void *arg) {
    (void)arg;
    return send_one(chan);
}

/* Every kind of wait works, also in a child, which is shielded with us. */
static void check_works(void) {
    weft_scope s;
    weft_task *t;
    weft_chan *own = weft_chan_new(sizeof(int), 0);
    int v = 0;
    CHECK_EQ(weft_cancelled(), 0);
    CHECK_EQ(weft_cancel_cause(), 0);
    CHECK_EQ(weft_task_start(&t, send_one, own, NULL), 0);
    CHECK_EQ(weft_chan_recv(own, &v, WEFT_FOREVER), 0);
    CHECK_EQ(v, 5);
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    CHECK_EQ(weft_sleep_for(20 * WEFT_US), 0);
    CHECK_EQ(weft_select(weft_after(20 * WEFT_US), weft_on_recv(own, &v, NULL)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_chan_recv(own, &v, weft_after(20 * WEFT_US)), WEFT_ETIMEDOUT);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, send_one, own), 0);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_recv(own, &v, NULL)), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(own);
}

static void check_cancelled(void) {
    int v = 0;
    CHECK_EQ(weft_cancelled(), 1);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_chan_recv(chan, &v, WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_recv(chan, &v, NULL)), WEFT_ECANCELED);
}

static int with_chan(weft_fn *fn, void *arg) {
    chan = weft_chan_new(sizeof(int), 0);
    int rc = fn(arg);
    weft_chan_unref(chan);
    return rc;
}

/* ---- the task's own ---- */

static int clean_up(void *arg) {
    (void)arg;
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    for (int i = 0; i < 3; i++) {
        check_cancelled();
        CHECK_EQ(weft_shield_begin(i == 0 ? WEFT_FOREVER : weft_after(HOUR)), 0);
        check_works();
        CHECK_EQ(weft_shield_begin(weft_after(HOUR)), 0); /* they nest */
        check_works();
        weft_shield_end();
        check_works();
        weft_shield_end();
        check_cancelled();
    }
    return WEFT_ECANCELED;
}

static int cancel_and_clean(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn(&s, clean_up, NULL), 0);
    weft_yield();
    weft_scope_cancel(&s);
    check_cancelled();
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0); /* the opener's own code */
    check_works();
    weft_shield_end();
    check_cancelled();
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_cancelled(), 0);
    return 0;
}

static int cancel_and_clean_each(void *arg) { return with_chan(cancel_and_clean, arg); }

TEST(shield, operations_work_again_in_a_cancelled_scope) { run_each(cancel_and_clean_each); }

/* A cancellation that comes while the shield is up, and the task waits, does not end the wait. */
static atomic_int waiting, told, done; /* told: the scope was cancelled */

static int wait_shielded(void *arg) {
    int kind = (int)(intptr_t)arg, v = 0;
    CHECK_EQ(weft_shield_begin(kind & 4 ? weft_after(HOUR) : WEFT_FOREVER), 0);
    atomic_fetch_add(&waiting, 1);
    int rc = (kind & 3) == 0   ? weft_chan_recv(chan, &v, WEFT_FOREVER)
             : (kind & 3) == 1 ? weft_select(WEFT_FOREVER, weft_on_recv(chan, &v, NULL))
             : (kind & 3) == 2 ? weft_chan_recv(chan, &v, weft_after(HOUR))
                               : weft_sleep_for(2 * WEFT_MS);
    CHECK_EQ(rc, 0);
    task_wait(&told, 1);
    CHECK_EQ(weft_cancelled(), 0);
    weft_shield_end();
    CHECK_EQ(weft_cancelled(), 1);
    atomic_fetch_add(&done, 1);
    return WEFT_ECANCELED;
}

/* The same, waiting in a child, which is shielded through its parent. */
static int wait_below(void *arg) {
    weft_scope s;
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, partner, arg), 0);
    atomic_fetch_add(&waiting, 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_shield_end();
    atomic_fetch_add(&done, 1);
    return 0;
}

static int cancel_shielded(void *arg) {
    (void)arg;
    weft_scope s;
    int v = 1;
    atomic_store(&waiting, 0);
    atomic_store(&told, 0);
    atomic_store(&done, 0);
    weft_scope_begin(&s, NULL);
    for (int k = 0; k < 8; k++) CHECK_EQ(weft_spawn(&s, wait_shielded, as_arg(k)), 0);
    task_wait_parked(&waiting, 8);
    weft_scope_cancel(&s);
    atomic_store(&told, 1);
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    for (int k = 0; k < 6; k++) CHECK_EQ(weft_chan_send(chan, &v, WEFT_FOREVER), 0);
    task_wait(&done, 8);
    weft_shield_end();
    CHECK_EQ(weft_scope_end(&s), 0);

    atomic_store(&waiting, 0);
    weft_scope_begin(&s, NULL);
    for (int k = 0; k < 4; k++) CHECK_EQ(weft_spawn(&s, wait_below, as_arg(k)), 0);
    task_wait_parked(&waiting, 4);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    for (int k = 0; k < 4; k++) CHECK_EQ(weft_chan_recv(chan, &v, WEFT_FOREVER), 0);
    weft_shield_end();
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

static int cancel_shielded_each(void *arg) { return with_chan(cancel_shielded, arg); }

TEST(shield, a_wait_under_it_is_not_ended_by_a_cancellation) { run_each(cancel_shielded_each); }

/* On a slow machine its time may be up by now. */
static void spawn_waiter(weft_scope *s) {
    int rc = weft_spawn(s, wait_for_ever, NULL);
    CHECK(rc == 0 || (rc == WEFT_ECANCELED && weft_cancelled()));
}

/* ---- what is inside can be cancelled ---- */

static int cancel_inside(void *arg) {
    (void)arg;
    weft_scope outer, inner;
    weft_scope_begin(&outer, NULL);
    weft_scope_cancel(&outer);
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    weft_scope_begin(&inner, &(weft_scope_opts){.deadline = weft_after(100 * WEFT_US)});
    spawn_waiter(&inner);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_cancel_cause(), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_scope_end(&inner), WEFT_ETIMEDOUT);
    weft_scope_begin(&inner, NULL);
    CHECK_EQ(weft_spawn(&inner, return_int, as_arg(-9)), 0);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&inner), -9);
    CHECK_EQ(weft_cancelled(), 0);
    weft_shield_end();
    CHECK_EQ(weft_scope_end(&outer), 0);
    return 0;
}

TEST(shield, scopes_inside_are_cancelled_as_always) { run_each(cancel_inside); }

/* The scope outside is cancelled, although the task that spawns does not see it. */
static int spawn_outwards(void *arg) {
    (void)arg;
    weft_scope outer;
    weft_scope_begin(&outer, NULL);
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    CHECK_EQ(weft_spawn(&outer, return_int, NULL), 0);
    weft_scope_cancel(&outer);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_cancelled(), 0);
        CHECK_EQ(weft_spawn(&outer, return_int, NULL), WEFT_ECANCELED);
        CHECK_EQ(weft_spawn_with(&outer, return_int, (int){3}), WEFT_ECANCELED);
    }
    weft_shield_end();
    CHECK_EQ(weft_scope_end(&outer), 0);
    return 0;
}

TEST(shield, a_cancelled_scope_outside_takes_no_children_from_inside) { run_each(spawn_outwards); }

/* ---- its time ---- */

static int outlive_shield(void *arg) {
    (void)arg;
    weft_scope inner;
    atomic_fetch_add(&waiting, 1);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_shield_begin(weft_after(300 * WEFT_US)), 0);
    weft_scope_begin(&inner, NULL);
    spawn_waiter(&inner); /* ends when the shield does */
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_cancelled(), 1);
    CHECK_EQ(weft_cancel_cause(), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&inner), WEFT_ECANCELED);
    check_cancelled();
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0); /* a new one inside that is up */
    CHECK_EQ(weft_cancelled(), 0);
    CHECK_EQ(weft_sleep_for(10 * WEFT_US), 0);
    weft_shield_end();
    check_cancelled();
    weft_shield_end();
    CHECK_EQ(weft_shield_begin(weft_at(1)), 0); /* in the past: as if there were none */
    check_cancelled();
    weft_shield_end();
    CHECK_EQ(weft_shield_begin(WEFT_POLL), 0);
    check_cancelled();
    weft_shield_end();
    return WEFT_ECANCELED;
}

static int outlive(void *arg) {
    (void)arg;
    weft_scope s;
    atomic_store(&waiting, 0);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 4; i++) CHECK_EQ(weft_spawn(&s, outlive_shield, NULL), 0);
    task_wait_parked(&waiting, 4);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

static int outlive_each(void *arg) { return with_chan(outlive, arg); }

TEST(shield, when_its_time_is_up_cancellation_is_seen_again) { run_each(outlive_each); }

/* Its time is up before anything is cancelled: then it is as if it were not there. */
static int cancelled_late(void *arg) {
    (void)arg;
    weft_scope inner;
    CHECK_EQ(weft_shield_begin(weft_after(20 * WEFT_US)), 0);
    CHECK_EQ(weft_sleep_for(300 * WEFT_US), 0);
    weft_scope_begin(&inner, NULL);
    CHECK_EQ(weft_spawn(&inner, wait_for_ever, NULL), 0);
    atomic_fetch_add(&waiting, 1);
    CHECK_EQ(weft_scope_end(&inner), WEFT_ECANCELED);
    CHECK_EQ(weft_cancelled(), 1);
    weft_shield_end();
    return WEFT_ECANCELED;
}

static int cancel_late(void *arg) {
    (void)arg;
    weft_scope s;
    atomic_store(&waiting, 0);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 4; i++) CHECK_EQ(weft_spawn(&s, cancelled_late, NULL), 0);
    task_wait_parked(&waiting, 4);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

TEST(shield, after_its_time_a_cancellation_passes_it) { run_each(cancel_late); }

static int shielded_deadlines(void *arg) {
    (void)arg;
    weft_scope outer, inner;
    weft_deadline one = weft_after(HOUR), two = weft_after(2 * HOUR), three = weft_after(3 * HOUR);
    weft_scope_begin(&outer, &(weft_scope_opts){.deadline = one});
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    CHECK_EQ(weft_scope_deadline().ns, 0); /* none comes in */
    weft_scope_begin(&inner, &(weft_scope_opts){.deadline = two});
    CHECK_EQ(weft_scope_deadline().ns, two.ns);
    CHECK_EQ(weft_scope_end(&inner), 0);
    weft_shield_end();
    CHECK_EQ(weft_shield_begin(two), 0);
    CHECK_EQ(weft_scope_deadline().ns, two.ns); /* the outer one, put off */
    weft_scope_begin(&inner, &(weft_scope_opts){.deadline = three});
    CHECK_EQ(weft_scope_deadline().ns, two.ns);
    CHECK_EQ(weft_scope_end(&inner), 0);
    weft_shield_end();
    CHECK_EQ(weft_shield_begin(weft_after(HOUR / 2)), 0);
    CHECK_EQ(weft_scope_deadline().ns, one.ns); /* it outlasts the shield */
    weft_shield_end();
    weft_scope_cancel(&outer);
    CHECK_EQ(weft_shield_begin(three), 0);
    CHECK_EQ(weft_scope_deadline().ns, three.ns); /* cancelled already: the shield's own */
    weft_shield_end();
    CHECK_EQ(weft_scope_end(&outer), 0);
    return 0;
}

TEST(shield, puts_off_the_deadlines_around_it) { run_each(shielded_deadlines); }

/* ---- the end of the runtime ---- */

static atomic_int cleaned;

static int clean_at_stop(void *arg) {
    (void)arg;
    weft_scope s;
    atomic_fetch_add(&waiting, 1);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_shield_begin(weft_after(HOUR)), 0);
    CHECK_EQ(weft_sleep_for(100 * WEFT_US), 0);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 10; i++) CHECK_EQ(weft_spawn(&s, return_int, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_shield_end();
    CHECK_EQ(weft_cancelled(), 1);
    atomic_fetch_add(&cleaned, 1);
    return 0;
}

/* Shielded when the runtime stops: in its own shield, or in that of the task that waits for it. */
static int shielded_at_stop(void *arg) {
    (void)arg;
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    atomic_fetch_add(&waiting, 1);
    CHECK_EQ(weft_sleep_for(2 * WEFT_MS), 0);
    weft_shield_end();
    atomic_fetch_add(&cleaned, 1);
    return 0;
}

static int sleep_two(void *arg) {
    (void)arg;
    atomic_fetch_add(&waiting, 1);
    CHECK_EQ(weft_sleep_for(2 * WEFT_MS), 0);
    atomic_fetch_add(&cleaned, 1);
    return 0;
}

static int children_at_stop(void *arg) {
    weft_scope s;
    CHECK_EQ(weft_shield_begin(weft_after(HOUR)), 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, sleep_two, arg), 0);
    CHECK_EQ(weft_spawn(&s, sleep_two, arg), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_shield_end();
    return 0;
}

/* Its shield's time is up after the runtime was told to stop. */
static int expires_at_stop(void *arg) {
    (void)arg;
    CHECK_EQ(weft_shield_begin(weft_after(3 * WEFT_MS)), 0);
    atomic_fetch_add(&waiting, 1);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    weft_shield_end();
    atomic_fetch_add(&cleaned, 1);
    return 0;
}

TEST(shield, tasks_clean_up_while_the_runtime_stops) {
    EACH_WORKERS(w) {
        atomic_store(&waiting, 0);
        atomic_store(&cleaned, 0);
        CHECK_EQ(set_up(w), 0);
        for (int i = 0; i < 20; i++) {
            CHECK_EQ(weft_go(clean_at_stop, NULL), 0);
            CHECK_EQ(weft_go(shielded_at_stop, NULL), 0);
            CHECK_EQ(weft_go(children_at_stop, NULL), 0);
            CHECK_EQ(weft_go(expires_at_stop, NULL), 0);
        }
        thread_wait(&waiting, 100);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        CHECK_EQ(atomic_load(&cleaned), 100);
    }
}

/* A task that is shielded by its parent sees nothing of the end of the runtime, but starts nothing beside it either. */
static int go_at_stop(void *arg) {
    (void)arg;
    atomic_fetch_add(&waiting, 1);
    int rc;
    while ((rc = weft_go(return_int, NULL)) == 0) {
        CHECK_EQ(weft_sleep_for(20 * WEFT_US), 0);
        CHECK_EQ(weft_cancelled(), 0);
    }
    CHECK_EQ(rc, WEFT_ECANCELED);
    CHECK_EQ(weft_go(wait_for_ever, NULL), WEFT_ECANCELED);
    CHECK_EQ(weft_cancelled(), 0);
    atomic_fetch_add(&cleaned, 1);
    return 0;
}

static int go_below(void *arg) {
    (void)arg;
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    WEFT_SCOPE(s) CHECK_EQ(weft_spawnf(&s, go_at_stop, NULL, "below"), 0);
    weft_shield_end();
    return 0;
}

TEST(shield, the_root_takes_no_tasks_from_inside_while_the_runtime_stops) {
    EACH_WORKERS(w) {
        atomic_store(&waiting, 0);
        atomic_store(&cleaned, 0);
        CHECK_EQ(set_up(w), 0);
        for (int i = 0; i < 5; i++) CHECK_EQ(weft_go(go_below, NULL), 0);
        thread_wait(&waiting, 5);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        CHECK_EQ(atomic_load(&cleaned), 5);
    }
}

/* ---- plain threads ---- */

static void *clean_in_thread(void *arg) {
    (void)arg;
    weft_scope s, inner;
    weft_scope_begin(&s, NULL);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_cancelled(), 1);
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    CHECK_EQ(weft_cancelled(), 0);
    CHECK_EQ(weft_sleep_for(10 * WEFT_US), 0);
    weft_scope_begin(&inner, NULL);
    CHECK_EQ(weft_spawn(&inner, return_int, NULL), 0);
    CHECK_EQ(weft_scope_end(&inner), 0);
    weft_shield_end();
    CHECK_EQ(weft_cancelled(), 1);
    CHECK_EQ(weft_shield_begin(weft_after(100 * WEFT_US)), 0);
    weft_scope_begin(&inner, NULL);
    spawn_waiter(&inner);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&inner), WEFT_ECANCELED);
    weft_shield_end();
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0); /* no scope at all */
    CHECK_EQ(weft_sleep_for(10 * WEFT_US), 0);
    weft_shield_end();
    CHECK_EQ(weft_cancelled(), 0);
    return NULL;
}

TEST(shield, works_in_plain_threads) {
    EACH_WORKERS(w) {
        pthread_t t[3];
        CHECK_EQ(set_up(w), 0);
        for (size_t i = 0; i < COUNT(t); i++) CHECK_EQ(pthread_create(&t[i], NULL, clean_in_thread, NULL), 0);
        for (size_t i = 0; i < COUNT(t); i++) pthread_join(t[i], NULL);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

/* A thread that is shielded when the runtime stops sees it when its time is up. */
static void *thread_at_stop(void *arg) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_shield_begin(weft_after(3 * WEFT_MS)), 0);
    weft_scope inner;
    weft_scope_begin(&inner, NULL);
    CHECK_EQ(weft_spawn(&inner, wait_for_ever, NULL), 0);
    atomic_store((atomic_int *)arg, 1);
    CHECK_EQ(weft_scope_end(&inner), WEFT_ECANCELED);
    weft_shield_end();
    CHECK_EQ(weft_scope_end(&s), WEFT_ECANCELED); /* although the runtime may be gone by now */
    return NULL;
}

TEST(shield, of_a_plain_thread_ends_with_its_time_although_the_runtime_stops) {
    EACH_WORKERS(w) {
        pthread_t t;
        atomic_int inside = 0;
        CHECK_EQ(set_up(w), 0);
        CHECK_EQ(pthread_create(&t, NULL, thread_at_stop, &inside), 0);
        thread_wait(&inside, 1);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        pthread_join(t, NULL);
    }
}

/* ---- children that run on their opener's stack ---- */

static int shield_inside(void *arg) {
    (void)arg;
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    task_wait(&told, 1);
    CHECK_EQ(weft_cancelled(), 0);
    CHECK_EQ(weft_sleep_for(10 * WEFT_US), 0);
    weft_shield_end();
    CHECK_EQ(weft_cancelled(), 1);
    return WEFT_ECANCELED;
}

static int inside(void *arg) {
    (void)arg;
    weft_scope s;
    atomic_store(&told, 0);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 20; i++) CHECK_EQ(weft_spawn(&s, shield_inside, NULL), 0);
    weft_scope_cancel(&s);
    atomic_store(&told, 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

TEST(shield, children_that_borrow_their_openers_stack_have_their_own) { run_each(inside); }

/* ---- misuse ---- */

static int end_nothing(void *arg) {
    (void)arg;
    weft_shield_end();
    return 0;
}

static int end_with_scope_open(void *arg) {
    (void)arg;
    weft_scope s;
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    weft_scope_begin(&s, NULL);
    weft_shield_end();
    return 0;
}

static int return_shielded(void *arg) {
    (void)arg;
    return weft_shield_begin(WEFT_FOREVER);
}

static int end_scope_shielded(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    return weft_scope_end(&s);
}

static int child_shielded(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, return_shielded, NULL), 0);
    return weft_scope_end(&s);
}

static int child_ends_ours(void *arg) {
    (void)arg;
    weft_scope s;
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, end_nothing, NULL), 0);
    return weft_scope_end(&s);
}

static weft_fn *misuse;

static int misuse_in_task(void *arg) { return run_on(1, misuse, arg); }

#define CHECK_MISUSE(fn, text)                                                                                                 \
    do {                                                                                                                       \
        misuse = (fn);                                                                                                         \
        CHECK_DIES(misuse_in_task, text);                                                                                      \
    } while (0)

TEST(shield, misuse_dies_with_a_sentence) {
    CHECK_DIES(end_nothing, "weft_shield_begin is missing");
    CHECK_MISUSE(end_nothing, "weft_shield_begin is missing");
    CHECK_MISUSE(end_with_scope_open, "was opened inside the shield and is still open");
    CHECK_MISUSE(return_shielded, "weft_shield_end is missing");
    CHECK_MISUSE(end_scope_shielded, "a shield still open inside");
    CHECK_MISUSE(child_shielded, "weft_shield_end is missing");
    CHECK_MISUSE(child_ends_ours, "weft_shield_end: ");
}
