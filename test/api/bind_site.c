/* SPDX-License-Identifier: MIT */
/* Spawn sites whose tasks bind: the next ones start bound. */
#include <semaphore.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "api/common.h"
#include "sched/sched.h"

#include <weft/debug.h>

static atomic_int ready, flag, ended;

static void reset(void) {
    atomic_store(&ready, 0);
    atomic_store(&flag, 0);
    atomic_store(&ended, 0);
}

/* Whether the calling task is on a thread that serves it alone: the kernel's name of it says so. (Compilers keep what pthread_self gave.) */
static __attribute__((noinline)) bool on_own_thread(void) {
    char name[32] = "";
    CHECK_EQ(prctl(PR_GET_NAME, name), 0);
    return strncmp(name, "weft-own", 8) == 0;
}

/* Each of these is one site, however its callers' loops are compiled. */
#define ONE_SITE static __attribute__((noinline))
ONE_SITE void spawn_at_one(weft_scope *s, weft_fn *fn, void *arg) { CHECK_EQ(weft_spawn(s, fn, arg), 0); }
ONE_SITE void copy_small(weft_scope *s, weft_fn *fn, const void *arg, size_t n) { CHECK_EQ(weft_spawn_copy(s, fn, arg, n), 0); }
ONE_SITE void copy_large(weft_scope *s, weft_fn *fn, const void *arg, size_t n) { CHECK_EQ(weft_spawn_copy(s, fn, arg, n), 0); }
ONE_SITE void spawn_high(weft_scope *s, weft_fn *fn, void *arg) {
    CHECK_EQ(weft_spawn_opts(s, fn, arg, &(weft_task_opts){.priority = WEFT_PRIORITY_HIGH}), 0);
}
ONE_SITE void spawn_flags(weft_scope *s, weft_fn *fn, void *arg, unsigned flags) {
    CHECK_EQ(weft_spawn_opts(s, fn, arg, &(weft_task_opts){.flags = flags}), 0);
}
ONE_SITE weft_task *start_named(weft_fn *fn, void *arg) {
    weft_task *t;
    CHECK_EQ(weft_task_start(&t, fn, arg, &(weft_task_opts){.name = "named"}), 0);
    return t;
}

static weft_stats stats(void) {
    weft_stats st;
    weft_stats_get(&st);
    return st;
}

/* Whether spawns say that their sites are to be asked for: one is remembered. */
static bool asked(void) {
    weft__shape plain = {.needs = atomic_load(&weft__rt.plain)};
    return plain.extra & WEFT_ASK_SITE;
}

struct job {
    bool bind;    /* it is to call weft_bind */
    bool started; /* it was on a thread of its own when it began */
    int err;      /* what weft_bind gave */
};

static int work(void *arg) {
    struct job *j = arg;
    j->started = on_own_thread();
    int tid = gettid();
    weft_yield();
    if (j->started) CHECK_EQ(gettid(), tid);
    if (!j->bind) return 0;
    j->err = weft_bind(WEFT_FOREVER);
    CHECK_EQ(j->err, 0);
    CHECK(on_own_thread());
    if (j->started) CHECK_EQ(gettid(), tid);
    CHECK_EQ(weft_bind(WEFT_POLL), 0);
    weft_unbind();
    CHECK(on_own_thread());
    weft_unbind();
    CHECK(!on_own_thread());
    return 0;
}

/* The one site of most of these tests. True: the task started bound. */
static __attribute__((noinline)) bool run_here(bool bind) {
    weft_scope s;
    struct job j = {.bind = bind};
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, work, &j), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    return j.started;
}

/* And another. */
static __attribute__((noinline)) bool run_there(bool bind) {
    weft_scope s;
    struct job j = {.bind = bind};
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, work, &j), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    return j.started;
}

static int second_starts_bound(void *arg) {
    (void)arg;
    CHECK(!run_here(true));
    for (int i = 0; i < 20; i++) {
        CHECK(run_here(true));
        CHECK(!run_there(false)); /* another site */
    }
    CHECK_EQ(stats().binds_ahead, 20);
    CHECK_EQ(stats().binds, 21);
    return 0;
}
TEST(bind_site, after_one_task_has_bound_the_next_start_bound) { run_each(second_starts_bound); }

static int forgets(void *arg) {
    (void)arg;
    for (int i = 0; i < 5; i++) {
        CHECK(!run_here(true));
        CHECK(run_here(false)); /* it did not bind: forgotten */
        CHECK(!run_here(false));
        CHECK(!run_here(false));
    }
    CHECK_EQ(stats().bound, 0);
    return 0;
}
TEST(bind_site, one_that_ends_without_having_bound_is_forgotten) { run_each(forgets); }

static int each_way(void *arg) {
    struct job j[2] = {{.bind = true}, {.bind = true}};
    (void)arg;
    for (int i = 0; i < 2; i++) {
        weft_task *t = start_named(work, &j[i]);
        CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
        CHECK_EQ(j[i].started, i);
    }
    weft_scope s;
    for (int i = 0; i < 2; i++) {
        weft_scope_begin(&s, &(weft_scope_opts){.limit = 1});
        spawn_at_one(&s, work, &j[i]);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(j[i].started, i);
    }
    return 0;
}
TEST(bind_site, with_handles_names_and_limits) { run_each(each_way); }

static int of_a_priority(void *arg) {
    weft_scope s;
    (void)arg;
    for (int i = 0; i < 3; i++) {
        struct job j = {.bind = true};
        weft_scope_begin(&s, NULL);
        spawn_high(&s, work, &j);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK(!j.started);
    }
    CHECK_EQ(stats().binds_ahead, 0);
    return 0;
}
TEST(bind_site, tasks_of_a_priority_do_not_start_bound) { run_each(of_a_priority); }

static int work_copied(void *arg) {
    struct job *j = *(struct job **)arg;
    return work(j);
}

static int copies(void *arg) {
    struct {
        struct job *j;
        char more[200];
    } large = {0};
    weft_scope s;
    struct job j[4] = {{.bind = true}, {.bind = true}, {.bind = true}, {.bind = true}}, *small;
    (void)arg;
    for (int i = 0; i < 2; i++) {
        small = &j[i];
        weft_scope_begin(&s, NULL);
        copy_small(&s, work_copied, &small, sizeof small);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(j[i].started, i);
        large.j = &j[2 + i];
        weft_scope_begin(&s, NULL);
        copy_large(&s, work_copied, &large, sizeof large);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(j[2 + i].started, i);
    }
    return 0;
}
TEST(bind_site, with_copied_arguments) { run_each(copies); }

/* ---- no thread to be had ---- */

static int hold(void *arg) {
    (void)arg;
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    atomic_fetch_add(&ready, 1);
    task_wait(&flag, 1);
    return 0;
}

static int poll_and_wait(void *arg) {
    *(bool *)arg = on_own_thread();
    CHECK_EQ(weft_bind(WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_bind(weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    atomic_fetch_add(&ended, 1);
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    weft_unbind();
    return 0;
}

static int bind_only(void *arg) {
    if (arg) *(bool *)arg = on_own_thread();
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    weft_unbind();
    return 0;
}

static bool full;
static int bind_or_find_none(void *arg) { return full ? poll_and_wait(arg) : bind_only(arg); }

static int exhausted_site(void *arg) {
    weft_scope s, c;
    bool started = false;
    (void)arg;
    full = false;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 3; i++) {
        full = i == 2;
        for (int k = 0; full && k < 2; k++) CHECK_EQ(weft_spawn(&s, hold, NULL), 0);
        if (full) task_wait(&ready, 2);
        weft_scope_begin(&c, NULL);
        spawn_at_one(&c, bind_or_find_none, &started);
        if (full) task_wait_parked(&ended, 1);
        if (full) atomic_store(&flag, 1);
        CHECK_EQ(weft_scope_end(&c), 0);
        CHECK_EQ(started, i == 1);
    }
    return weft_scope_end(&s);
}

TEST(bind_site, when_all_threads_are_taken_they_start_unbound_and_wait_in_bind) {
    EACH_WORKERS(w) {
        weft_config cfg = {.workers = w, .bound_threads_max = 2};
        reset();
        CHECK_EQ(weft_run(exhausted_site, NULL, &cfg), 0);
    }
}

/* ---- nobody waits for one that only may bind ---- */

static int pipes[2];

/* Those that find the thread of the last one not free yet bind. The first that starts bound, on the only thread there may be, runs `then`. */
static int bind_or(weft_fn *then) {
    if (!on_own_thread()) return bind_only(NULL);
    CHECK_EQ(stats().bound, 1);
    atomic_store(&ready, 1);
    return then(NULL);
}

/* Starts such tasks at one site until one of them runs `then`; the handle of that one. */
static weft_task *start_until_ready(weft_fn *fn) {
    weft_task *t;
    for (;;) {
        t = start_named(fn, NULL);
        int err = WEFT_ETIMEDOUT;
        while (!atomic_load(&ready) && (err = weft_task_join(t, NULL, weft_after(WEFT_MS))) == WEFT_ETIMEDOUT) continue;
        if (atomic_load(&ready)) return t;
        CHECK_EQ(err, 0);
    }
}

static int wait_then_bind(void *arg) {
    char c;
    (void)arg;
    if (pipes[0])
        CHECK_EQ(read(pipes[0], &c, 1), 1); /* not even in the runtime */
    else
        task_wait(&flag, 1);
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0); /* when the other's turn is over */
    weft_unbind();
    return 0;
}
static int bind_or_wait(void *arg) {
    (void)arg;
    return bind_or(wait_then_bind);
}

static int bind_meanwhile(void *arg) {
    (void)arg;
    weft_task *t = start_until_ready(bind_or_wait);
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0); /* one may, and none has */
    CHECK(on_own_thread());
    CHECK_EQ(stats().bound, 2);
    if (pipes[0]) CHECK_EQ(write(pipes[1], "a", 1), 1);
    atomic_store(&flag, 1);
    CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
    weft_unbind();
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    return 0;
}

TEST(bind_site, who_binds_never_waits_for_one_that_has_only_started_bound) {
    for (int blocks = 0; blocks < 2; blocks++) {
        if (blocks) CHECK_EQ(pipe(pipes), 0);
        EACH_WORKERS(w) {
            reset();
            CHECK_EQ(weft_run(bind_meanwhile, NULL, &(weft_config){.workers = w, .bound_threads_max = 1}), 0);
        }
    }
    close(pipes[0]);
    close(pipes[1]);
}

/* A task that started bound, and calls weft_bind when as many have as may: it waits, under its deadline, as it would have. */
static int bind_too_late(void *arg) {
    (void)arg;
    task_wait(&flag, 1);
    CHECK_EQ(weft_bind(WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_bind(weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    atomic_store(&ended, 1);
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    weft_unbind();
    CHECK(on_own_thread());
    weft_unbind();
    CHECK(!on_own_thread());
    return 0;
}
static int bind_late(void *arg) {
    (void)arg;
    return bind_or(bind_too_late);
}

static int hold_the_place(void *arg) {
    (void)arg;
    weft_task *t = start_until_ready(bind_late);
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    atomic_store(&flag, 1);
    task_wait_parked(&ended, 1);
    weft_unbind();
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    return 0;
}

TEST(bind_site, one_that_started_bound_waits_in_bind_as_it_would_have) {
    EACH_WORKERS(w) {
        reset();
        CHECK_EQ(weft_run(hold_the_place, NULL, &(weft_config){.workers = w, .bound_threads_max = 1}), 0);
    }
}

/* ---- a thread that is one too many ends, and takes its time ---- */

static pthread_key_t at_thread_end;
static sem_t go;
static atomic_int ending;

static void end_slowly(void *arg) {
    (void)arg;
    atomic_store(&ending, 1);
    while (sem_wait(&go)) continue;
}

static int leave_something(void *arg) {
    (void)arg;
    CHECK_EQ(pthread_setspecific(at_thread_end, &ending), 0);
    task_wait(&flag, 1);
    return 0;
}
static int bind_or_leave_something(void *arg) {
    (void)arg;
    return bind_or(leave_something);
}

static int block_on_pipe(void *arg) {
    char c;
    (void)arg;
    atomic_fetch_add(&ended, 1);
    CHECK_EQ(read(pipes[0], &c, 1), 1);
    return 0;
}

enum { BLOCKING = 6 };

static int need_threads(void *arg) {
    weft_scope s;
    (void)arg;
    weft_task *t = start_until_ready(bind_or_leave_something);
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0); /* the second thread, and one may be */
    atomic_store(&flag, 1);
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    task_wait(&ending, 1);
    weft_unbind();
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < BLOCKING; i++) CHECK_EQ(weft_spawn(&s, block_on_pipe, NULL), 0);
    task_wait(&ended, BLOCKING); /* each but the last was gone on without by a thread that may be new */
    CHECK_EQ(sem_post(&go), 0);
    for (int i = 0; i < BLOCKING; i++) CHECK_EQ(write(pipes[1], "a", 1), 1);
    return weft_scope_end(&s);
}

TEST(bind_site, nobody_waits_for_the_end_of_a_thread_that_is_one_too_many) {
    CHECK_EQ(pipe(pipes), 0);
    CHECK_EQ(sem_init(&go, 0, 0), 0);
    CHECK_EQ(pthread_key_create(&at_thread_end, end_slowly), 0);
    EACH_WORKERS(w) {
        reset();
        atomic_store(&ending, 0);
        CHECK_EQ(weft_run(need_threads, NULL, &(weft_config){.workers = w, .bound_threads_max = 1}), 0);
    }
    CHECK_EQ(pthread_key_delete(at_thread_end), 0);
    close(pipes[0]);
    close(pipes[1]);
}

/* ---- what is not remembered, and what dies as always ---- */

static int pin_or_bind(void *arg) {
    if (!arg) return bind_only(NULL);
    CHECK(on_own_thread());
    weft_pin();
    CHECK_EQ(weft_bind(WEFT_FOREVER), WEFT_EINVAL);
    weft_unpin();
    CHECK(on_own_thread());
    return 0;
}

static int pinned(void *arg) {
    weft_scope s;
    (void)arg;
    for (int i = 0; i < 2; i++) {
        weft_scope_begin(&s, NULL);
        spawn_at_one(&s, pin_or_bind, as_arg(i));
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    return 0;
}
TEST(bind_site, a_pin_still_keeps_it_from_binding) { run_each(pinned); }

static int started_bound(void *arg) {
    *(bool *)arg = on_own_thread();
    return 0;
}
static int bind_or_tell(void *arg) { return arg ? started_bound(arg) : bind_only(NULL); }

static int pinned_from_the_start(void *arg) {
    weft_scope s;
    bool bound = true;
    (void)arg;
    for (int i = 0; i < 2; i++) {
        weft_scope_begin(&s, NULL);
        spawn_flags(&s, bind_or_tell, i ? &bound : NULL, i ? WEFT_PINNED : 0);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    CHECK(!bound);
    CHECK_EQ(stats().binds_ahead, 0);
    return 0;
}
TEST(bind_site, pinned_tasks_do_not_start_bound) { run_each(pinned_from_the_start); }

/* What had to be waited for in vain was wanted all the same: the site is not forgotten. */
static int bind_or_fail(void *arg) {
    if (!full) return bind_only(arg);
    CHECK_EQ(weft_bind(WEFT_POLL), WEFT_EAGAIN);
    return 0;
}
static int bind_in_vain(void *arg) {
    weft_scope s;
    bool started = false;
    (void)arg;
    for (int i = 0; i < 2; i++) {
        full = i == 1;
        if (full) CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
        weft_scope_begin(&s, NULL);
        spawn_at_one(&s, bind_or_fail, &started);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    CHECK(asked());
    weft_unbind();
    return 0;
}
TEST(bind_site, one_that_binds_in_vain_is_not_forgotten) {
    EACH_WORKERS(w) CHECK_EQ(weft_run(bind_in_vain, NULL, &(weft_config){.workers = w, .bound_threads_max = 1}), 0);
}

static int rebind(void *arg) {
    (void)arg;
    weft_unbind();
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    return 0;
}
static int rebind_bound(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    spawn_flags(&s, rebind, NULL, WEFT_BOUND);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK(!asked());
    return 0;
}
TEST(bind_site, tasks_that_are_spawned_bound_are_not_remembered) { run_each(rebind_bound); }

static int unbind_at_once(void *arg) {
    if (!arg) return bind_only(NULL);
    CHECK(on_own_thread());
    weft_unbind();
    return 0;
}
static int unbind_second(void *arg) {
    weft_scope s;
    (void)arg;
    for (int i = 0; i < 2; i++) {
        weft_scope_begin(&s, NULL);
        spawn_at_one(&s, unbind_at_once, as_arg(i));
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    return 0;
}
static int run_unbind_second(void *arg) { return weft_run(unbind_second, arg, NULL); }
TEST(bind_site, an_unbind_without_bind_dies_all_the_same) { CHECK_DIES(run_unbind_second, "is not bound"); }

static int bind_main(void *arg) {
    (void)arg;
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    weft_unbind();
    CHECK(!asked()); /* weft_run's own task comes once */
    CHECK(!run_there(false));
    CHECK_EQ(stats().binds_ahead, 0);
    return 0;
}
TEST(bind_site, the_next_runtime_remembers_nothing) {
    EACH_WORKERS(w) {
        CHECK_EQ(run_on(w, bind_main, NULL), 0);
        CHECK_EQ(run_on(w, second_starts_bound, NULL), 0);
    }
}

/* ---- a wrong guess costs little ---- */

static int bind_or_stay(void *arg) {
    if (arg) {
        CHECK_EQ(bind_only(NULL), 0);
        atomic_store(&ended, 1);
        return 0;
    }
    atomic_fetch_add(&ready, on_own_thread() ? 1 : 1000);
    (void)weft_sleep(WEFT_FOREVER);
    return 0;
}

enum { AT_MOST = 3 };

static int few_guesses(void *arg) {
    weft_scope s;
    int few = (int)(intptr_t)arg;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 101; i++) {
        spawn_at_one(&s, bind_or_stay, as_arg(i == 0));
        if (i == 0) task_wait(&ended, 1);
    }
    while (atomic_load(&ready) / 1000 + atomic_load(&ready) % 1000 < 100) CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
    int bound = atomic_load(&ready) % 1000; /* the others stay where tasks are cheap */
    if (few == AT_MOST)
        CHECK_LE(bound, AT_MOST); /* the first one's thread may not have been free yet */
    else
        CHECK_EQ(bound, few);
    CHECK_EQ(stats().bound, bound);
    weft_scope_cancel(&s);
    (void)weft_scope_end(&s);
    CHECK_EQ(stats().bound, 0);
    return 0;
}

TEST(bind_site, only_a_few_start_bound_before_one_of_them_has_bound) {
    EACH_WORKERS(w) {
        reset();
        CHECK_EQ(weft_run(few_guesses, as_arg(8), &(weft_config){.workers = w}), 0);
    }
}

enum { BINDS, STAYS, ENDS, CYCLES = 6, GUESSES = 8 };

static int bind_stay_or_end(void *arg) { return arg == as_arg(ENDS) ? 0 : bind_or_stay(as_arg(arg == as_arg(BINDS))); }

/* Each time it is remembered anew, as many stay as may be guessed at once; then one ends that did not bind. */
static int forgotten_often(void *arg) {
    weft_scope staying, s;
    (void)arg;
    weft_scope_begin(&staying, NULL);
    for (int i = 0; i < CYCLES; i++) {
        static const int first[] = {BINDS, ENDS};
        for (int k = 0; k < 2; k++) {
            weft_scope_begin(&s, NULL);
            spawn_at_one(&s, bind_stay_or_end, as_arg(first[k]));
            CHECK_EQ(weft_scope_end(&s), 0);
            for (int n = 0; k == 0 && n < GUESSES; n++) spawn_at_one(&staying, bind_stay_or_end, as_arg(STAYS));
            int all = GUESSES * (i + 1);
            while (atomic_load(&ready) / 1000 + atomic_load(&ready) % 1000 < all) CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
        }
        CHECK_LE(stats().bound, GUESSES);
    }
    CHECK_GT(stats().bound, 0);
    weft_scope_cancel(&staying);
    (void)weft_scope_end(&staying);
    CHECK_EQ(stats().bound, 0);
    CHECK(!asked());
    return 0;
}

TEST(bind_site, however_often_it_is_forgotten_only_a_few_are_open) {
    EACH_WORKERS(w) {
        reset();
        CHECK_EQ(weft_run(forgotten_often, NULL, &(weft_config){.workers = w}), 0);
    }
}

/* Four that were right, and the first was no guess. */
static int more_guesses(void *arg) {
    weft_scope s;
    (void)arg;
    for (int i = 0; i < 5; i++) {
        weft_scope_begin(&s, NULL);
        spawn_at_one(&s, bind_or_stay, as_arg(1));
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    atomic_store(&ended, 0);
    return few_guesses(as_arg(8 + 4 + 1)); /* it has one bind once more first */
}

TEST(bind_site, each_that_was_right_lets_one_more_start_bound) {
    EACH_WORKERS(w) {
        reset();
        CHECK_EQ(weft_run(more_guesses, NULL, &(weft_config){.workers = w}), 0);
    }
}

TEST(bind_site, no_more_start_bound_than_may_be) {
    EACH_WORKERS(w) {
        reset();
        CHECK_EQ(weft_run(few_guesses, as_arg(AT_MOST), &(weft_config){.workers = w, .bound_threads_max = AT_MOST}), 0);
    }
}
