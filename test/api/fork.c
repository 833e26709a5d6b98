/* SPDX-License-Identifier: MIT */
/* fork and exit: what a child of a process with a running runtime may do, and what the rest says. */
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/common.h"
#include "chan/chan.h"
#include "sync/mutex.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NO_THREADS_AFTER_FORK 1
#endif
#endif
#ifndef NO_THREADS_AFTER_FORK
#define NO_THREADS_AFTER_FORK test_emulated() /* ThreadSanitizer starts no thread in such a child, and qemu-user dies of one */
#endif

/* All other threads of this process sleep: none is inside the allocator. */
static bool others_sleep(void *arg) {
    DIR *d = opendir("/proc/self/task");
    bool all = d != NULL;
    (void)arg;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[300], state = 'S';
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", e->d_name);
        FILE *f = e->d_name[0] == '.' || atoi(e->d_name) == (int)gettid() ? NULL : fopen(path, "re");
        if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 'S'; /* it has just ended */
        if (f) fclose(f);
        all = all && state == 'S';
    }
    if (d) closedir(d);
    return all;
}

/* fn(arg) in a child that is forked here and now, with all threads running; it must exit with what fn returns, `want`. */
static void in_child(int (*fn)(void *), void *arg, int want, const char *what) {
    fflush(NULL);
    if (test_slow_tools() == 10)
        test_until(others_sleep, NULL); /* the sanitizers' allocators do not survive the fork otherwise */
    int fd[2], rc = -1, status = 0;
    CHECK_EQ(pipe(fd), 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        test_forked(); /* a hang ends with a signal */
        rc = fn(arg);
        if (write(fd[1], &rc, sizeof rc) != sizeof rc) _exit(1);
        if (test_slow_tools() > 10) raise(SIGKILL); /* valgrind calls what only the parent's threads had a leak */
        _exit(rc);
    }
    close(fd[1]);
    bool told = read(fd[0], &rc, sizeof rc) == sizeof rc;
    close(fd[0]);
    while (waitpid(pid, &status, 0) < 0) CHECK_EQ(errno, EINTR);
    if (!told && WIFEXITED(status)) rc = WEXITSTATUS(status);
    CHECK_MSG(rc == want, "%s: %d, status 0x%x", what, rc, (unsigned)status);
}

static weft_chan *filled, *silent;
static weft_task *waiting;
static weft_scope open_scope;

/* A thread of the child calls everything that needs a runtime, or somebody on the other side. */
static int call_everything(void *arg) {
    (void)arg;
    weft_task *t = NULL;
    weft_stats st, zero;
    weft_scope s;
    int v = 0, result = 0;
    memset(&zero, 0, sizeof zero);
    weft_stats_get(&st);
    CHECK(memcmp(&st, &zero, sizeof st) == 0);
    CHECK_EQ(weft_go(return_int, NULL), WEFT_ETERMINATED);
    CHECK_EQ(weft_task_start(&t, return_int, NULL, NULL), WEFT_ETERMINATED);
    CHECK_EQ(weft_block_on(return_int, NULL), WEFT_ETERMINATED);
    CHECK_EQ(weft_stop(WEFT_FOREVER), WEFT_ETERMINATED);
    CHECK_EQ(weft_self(), 0);
    weft_yield();
    CHECK_EQ(weft_chan_recv(silent, &v, WEFT_FOREVER), WEFT_ECLOSED); /* nobody will ever send */
    CHECK_EQ(weft_chan_send(silent, &v, WEFT_FOREVER), WEFT_ECLOSED);
    CHECK_EQ(weft_chan_recv(filled, &v, WEFT_FOREVER), 0); /* what is in it is there */
    CHECK_EQ(v, 17);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_recv(filled, &v, NULL), weft_on_recv(silent, &v, NULL)), WEFT_ECLOSED);
    CHECK_EQ(weft_task_join(waiting, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, WEFT_ETERMINATED);
    CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, return_int, NULL), WEFT_ETERMINATED);
    CHECK_EQ(weft_scope_end(&s), WEFT_ETERMINATED);
    weft_chan *c = weft_chan_new(sizeof v, 1);
    CHECK(c);
    CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), 0);
    CHECK_EQ(weft_chan_recv(c, &v, WEFT_FOREVER), 0);
    weft_chan_unref(c);
    weft_chan_unref(silent);
    weft_chan_unref(filled);
    return 21;
}

static int recv_silent(void *arg) {
    (void)arg;
    return weft_chan_recv(silent, NULL, WEFT_FOREVER);
}

static void start_with_objects(int workers) {
    int v = 17;
    CHECK_EQ(set_up(workers), 0);
    silent = weft_chan_new(sizeof(int), 0);
    filled = weft_chan_new(sizeof(int), 1);
    CHECK_EQ(weft_chan_send(filled, &v, WEFT_FOREVER), 0);
    CHECK_EQ(weft_task_start(&waiting, recv_silent, NULL, NULL), 0);
    for (int i = 0; i < 50; i++) CHECK_EQ(weft_go(recv_silent, NULL), 0);
}

static void stop_with_objects(void) {
    int v;
    weft_task_cancel(waiting);
    CHECK_EQ(weft_task_join(waiting, &v, WEFT_FOREVER), 0); /* all is well in the parent */
    CHECK_EQ(v, WEFT_ECANCELED);
    CHECK_EQ(weft_chan_recv(filled, &v, WEFT_FOREVER), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    weft_chan_unref(silent);
    weft_chan_unref(filled);
}

TEST(fork, in_the_child_there_is_no_runtime_and_every_call_says_so) {
    EACH_WORKERS(w) {
        start_with_objects(w);
        in_child(call_everything, NULL, 21, "calls in the child");
        stop_with_objects();
    }
}

/* ---- a channel whose lock leans ---- */

static weft_chan *leaning;

static int make_it_lean(void *arg) {
    (void)arg;
    long v = 7;
    uint32_t after = weft__chan_lean_after;
    weft__chan_lean_after = 0; /* from the first lap on */
    leaning = weft_chan_new(sizeof v, 2);
    weft__chan_lean_after = after;
    for (int i = 0; i < 8; i++) {
        CHECK_EQ(weft_chan_send(leaning, &v, WEFT_FOREVER), 0);
        CHECK_EQ(weft_chan_recv(leaning, &v, WEFT_FOREVER), 0);
    }
    CHECK_EQ(weft_chan_send(leaning, &v, WEFT_FOREVER), 0);
    CHECK_EQ(weft__load(&leaning->lock.leans, relaxed) != 0, !weft__fences && !weft__san_tasks);
    return 0;
}

static int find_it_closed(void *arg) {
    (void)arg;
    long v = 0;
    CHECK_EQ(weft_chan_send(leaning, &v, WEFT_FOREVER), WEFT_ECLOSED);
    CHECK_EQ(weft_chan_len(leaning), 1);
    CHECK_EQ(weft__load(&leaning->lock.leans, relaxed), 0);
    CHECK(!weft__load(&weft__leans[2].tries, relaxed));
    return 23;
}

TEST(fork, a_channel_that_leans_is_closed_in_the_child) {
    long v;
    CHECK_EQ(set_up(1), 0);
    CHECK_EQ(weft_block_on(make_it_lean, NULL), 0);
    weft__store(&weft__leans[2].tries, &leaning->lock,
                relaxed); /* as if somebody were about to take it: nobody will in the child */
    in_child(find_it_closed, NULL, 23, "a leaning channel in the child");
    weft__store(&weft__leans[2].tries, NULL, relaxed);
    CHECK_EQ(weft_chan_recv(leaning, &v, WEFT_FOREVER), 0);
    CHECK_EQ(v, 7);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    weft_chan_unref(leaning);
}

static int end_the_scope(void *arg) {
    (void)arg;
    CHECK_EQ(weft_cancelled(), 1);
    CHECK_EQ(weft_cancel_cause(), WEFT_ETERMINATED);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&open_scope), WEFT_ETERMINATED);
    CHECK_EQ(weft_cancelled(), 0);
    return 22;
}

TEST(fork, a_scope_that_was_open_is_cancelled_and_empty_in_the_child) {
    EACH_WORKERS(w) {
        weft_scope_opts o = {.deadline = weft_after(HOUR), .on_error = WEFT_KEEP_GOING};
        CHECK_EQ(set_up(w), 0);
        weft_scope_begin(&open_scope, &o);
        for (int i = 0; i < 20; i++) CHECK_EQ(weft_spawn(&open_scope, wait_for_ever, NULL), 0);
        in_child(end_the_scope, NULL, 22, "scope in the child");
        weft_scope_cancel(&open_scope);
        CHECK_EQ(weft_scope_end(&open_scope), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

static int called_back;

static void call_back(void *arg) { called_back += (int)(intptr_t)arg; }

static int end_the_limited_scope(void *arg) {
    int result;
    (void)arg;
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    weft_shield_end();
    CHECK_EQ(weft_scope_wait_any(&open_scope, &result, WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_spawn(&open_scope, return_int, NULL), WEFT_ETERMINATED);
    CHECK_EQ(weft_scope_defer(&open_scope, call_back, as_arg(4)), 0);
    CHECK_EQ(weft_scope_end(&open_scope), WEFT_ETERMINATED);
    CHECK_EQ(called_back, 7);
    CHECK_EQ(weft_shield_begin(weft_after(HOUR)), 0); /* and all of it works anew */
    weft_scope_begin(&open_scope, &(weft_scope_opts){.limit = 1, .results = true});
    CHECK_EQ(weft_scope_wait_any(&open_scope, &result, WEFT_FOREVER), WEFT_EEOF);
    CHECK_EQ(weft_scope_end(&open_scope), 0);
    weft_shield_end();
    return 23;
}

TEST(fork, limits_shields_and_deferred_functions_in_the_child) {
    EACH_WORKERS(w) {
        weft_scope_opts o = {.deadline = weft_after(HOUR), .limit = 20, .results = true};
        CHECK_EQ(set_up(w), 0);
        called_back = 0;
        weft_scope_begin(&open_scope, &o);
        CHECK_EQ(weft_scope_defer(&open_scope, call_back, as_arg(1)), 0);
        CHECK_EQ(weft_scope_defer(&open_scope, call_back, as_arg(2)), 0);
        for (int i = 0; i < 20; i++) CHECK_EQ(weft_spawn(&open_scope, wait_for_ever, NULL), 0);
        CHECK_EQ(weft_shield_begin(weft_after(HOUR)), 0);
        in_child(end_the_limited_scope, NULL, 23, "limited scope in the child");
        weft_shield_end();
        weft_scope_cancel(&open_scope);
        CHECK_EQ(weft_scope_end(&open_scope), 0);
        CHECK_EQ(called_back, 3);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

static int work(void *arg) {
    weft_scope s;
    weft_chan *c = weft_chan_new(sizeof(int), 0);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 100; i++) CHECK_EQ(weft_spawn(&s, return_int, as_arg(i)), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_chan_recv(c, NULL, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    weft_chan_unref(c);
    return (int)(intptr_t)arg;
}

static int start_afresh(void *arg) {
    for (int i = 0; i < 3; i++) CHECK_EQ(run_on(1 + i, work, as_arg(5)), 5);
    int generation = (int)(intptr_t)arg;
    if (generation == 0) return 23;
    CHECK_EQ(set_up(2), 0);
    in_child(start_afresh, as_arg(generation - 1), 23, "a grandchild");
    CHECK_EQ(weft_block_on(work, as_arg(6)), 6);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    return 23;
}

TEST(fork, a_child_of_a_plain_thread_may_start_a_runtime_of_its_own) {
    if (NO_THREADS_AFTER_FORK) test_skip("the tool starts no threads in such a child");
    EACH_WORKERS(w) {
        start_with_objects(w);
        in_child(start_afresh, as_arg(2), 23, "a runtime in the child");
        stop_with_objects();
    }
}

static int run_before(void *arg) {
    (void)arg;
    return run_on(2, work, as_arg(9));
}

TEST(fork, before_the_start_and_after_the_stop_it_is_nothing_special) {
    in_child(run_before, NULL, 9, "before");
    CHECK_EQ(run_on(2, work, as_arg(8)), 8);
    in_child(run_before, NULL, 9, "after");
}

/* ---- in a task ---- */

static int exec_true(void *arg) {
    (void)arg;
    execl("/bin/true", "true", (char *)NULL);
    return 1;
}

static int call_start(void *arg) {
    (void)arg;
    weft_task *t;
    CHECK_EQ(weft_start(NULL), WEFT_ETERMINATED);
    CHECK_EQ(weft_stop(WEFT_FOREVER), WEFT_ETERMINATED);
    CHECK_EQ(weft_block_on(return_int, NULL), WEFT_ETERMINATED);
    CHECK_EQ(weft_task_start(&t, return_int, NULL, NULL), WEFT_ETERMINATED);
    CHECK_EQ(weft_self(), 0);
    return 24;
}

static int call_exit(void *arg) {
    (void)arg;
    exit(25);
}

static int fork_in_task(void *arg) {
    (void)arg;
    in_child(exec_true, NULL, 0, "exec");
    in_child(return_int, as_arg(3), 3, "_exit");
    in_child(call_exit, NULL, 25, "exit");
    in_child(call_start, NULL, 24, "start");
    return work(as_arg(0));
}

TEST(fork, a_child_of_a_task_may_exec_or_exit) { run_each_watched(fork_in_task); }

static int yields(void *arg) { return weft_yield(), (int)(intptr_t)arg; }
static int sends(void *arg) {
    (void)arg;
    return weft_chan_send(silent, NULL, WEFT_FOREVER);
}

/* The child of this task goes on as if it were the task: what it does then is in *arg. */
static int fork_and_go_on(void *arg) {
    weft_fn *then = *(weft_fn **)arg;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        test_forked();
        return then ? then(NULL) : 0; /* without: returns from the task */
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) CHECK_EQ(errno, EINTR);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? 42 : 1;
}

static int run_fork_and_go_on(void *arg) {
    silent = weft_chan_new(0, 0);
    return run_on(2, fork_and_go_on, arg);
}

TEST(fork, a_child_of_a_task_that_goes_on_is_told) {
    weft_fn *then[] = {yields, sends, NULL};
    for (size_t i = 0; i < COUNT(then); i++) {
        struct test_child c;
        test_child(run_fork_and_go_on, &then[i], &c);
        CHECK_MSG(c.exit_code == 42, "case %zu: exit %d, signal %d:\n%s", i, c.exit_code, c.signal, c.out);
        CHECK_MSG(strstr(c.out, "weft: a task forked, and its child process"), "case %zu: %s", i, c.out);
    }
}

/* ---- in the middle of everything ---- */

static weft_chan *busy;
static atomic_int enough;

static int send_for_ever(void *arg) {
    int v = 1;
    (void)arg;
    while (!atomic_load(&enough) && weft_chan_send(busy, &v, WEFT_FOREVER) == 0) continue;
    return 0;
}

static int spawn_for_ever(void *arg) {
    (void)arg;
    while (!atomic_load(&enough)) {
        weft_scope s;
        weft_task *t = NULL;
        weft_chan *c = weft_chan_new(8, 8);
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < 20; i++) (void)weft_spawn(&s, yields, NULL);
        (void)weft_scope_end(&s);
        if (weft_task_start(&t, return_int, NULL, NULL) == 0 && weft_task_join(t, NULL, WEFT_FOREVER) != 0)
            weft_task_unref(t); /* the runtime stops */
        weft_chan_unref(c);
    }
    return 0;
}

static void *recv_for_ever(void *arg) {
    int v;
    (void)arg;
    while (weft_chan_recv(busy, &v, WEFT_FOREVER) == 0) (void)weft_block_on(return_int, NULL);
    return NULL;
}

/* Locks are held, lists are half done: nothing of that may hold up the child. */
static int use_in_child(void *arg) {
    int v, rc;
    while ((rc = weft_chan_recv(busy, &v, WEFT_FOREVER)) == 0) continue;
    CHECK_EQ(rc, WEFT_ECLOSED);
    CHECK_EQ(weft_chan_send(busy, &v, WEFT_FOREVER), WEFT_ECLOSED);
    weft_chan_unref(busy);
    CHECK_EQ(weft_go(return_int, NULL), WEFT_ETERMINATED);
    for (int i = 0; i < 300; i++) CHECK(weft_chan_new(8, 8));
    if (arg && !NO_THREADS_AFTER_FORK) CHECK_EQ(run_on(2, work, as_arg(4)), 4);
    return 26;
}

TEST_T(fork, a_child_never_waits_for_a_thread_that_it_does_not_have, 120) {
    if (test_slow_tools() == 10) test_skip("the sanitizers' own locks do not survive such a fork");
    EACH_WORKERS(w) {
        pthread_t t[2];
        atomic_store(&enough, 0);
        CHECK_EQ(set_up(w), 0);
        busy = weft_chan_new(sizeof(int), 4);
        for (int i = 0; i < 4; i++) CHECK_EQ(weft_go(i % 2 ? send_for_ever : spawn_for_ever, NULL), 0);
        for (size_t i = 0; i < COUNT(t); i++) CHECK_EQ(pthread_create(&t[i], NULL, recv_for_ever, NULL), 0);
        for (long i = test_scale(100, 10); i > 0; i--) in_child(use_in_child, as_arg(i % 4 == 0), 26, "use");
        atomic_store(&enough, 1);
        CHECK_EQ(weft_chan_close(busy), 0);
        for (size_t i = 0; i < COUNT(t); i++) pthread_join(t[i], NULL);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        weft_chan_unref(busy);
    }
}

/* The locks of the table, each held by a thread that the child does not have; with 2,048 objects it comes past all of them. */
static void *hold_table(void *over) {
    for (size_t i = 0; i < COUNT(weft__sync_table); i++) weft__lock_take(&weft__sync_table[i].lock);
    atomic_fetch_add(&enough, 1);
    thread_wait(over, 1);
    for (size_t i = 0; i < COUNT(weft__sync_table); i++) weft__lock_leave(&weft__sync_table[i].lock);
    return NULL;
}

static int lock_in_child(void *arg) {
    static struct {
        weft_mutex m;
        weft_rwlock rw;
        weft_cond c;
        weft_sem s;
    } all[512];
    (void)arg;
    for (size_t i = 0; i < COUNT(all); i++) {
        weft_mutex_lock(&all[i].m);
        CHECK_EQ(weft_cond_wait(&all[i].c, &all[i].m, weft_after(WEFT_US)), WEFT_ETIMEDOUT);
        weft_mutex_unlock(&all[i].m);
        weft_rwlock_wrlock(&all[i].rw);
        weft_rwlock_wrunlock(&all[i].rw);
        CHECK_EQ(weft_sem_acquire(&all[i].s, weft_after(1)), WEFT_ETIMEDOUT);
        weft_cond_broadcast(&all[i].c);
        weft_mutex_destroy(&all[i].m);
    }
    return 29;
}

TEST_T(fork, a_child_has_locks_of_its_own, 120) {
    static atomic_int over;
    if (test_slow_tools() == 10) test_skip("the sanitizers' own locks do not survive such a fork");
    pthread_t t;
    atomic_store(&enough, 0);
    CHECK_EQ(weft_start(&(weft_config){.workers = 2, .flags = WEFT_LOCK_CHECK}), 0);
    CHECK_EQ(pthread_create(&t, NULL, hold_table, &over), 0);
    thread_wait(&enough, 1);
    in_child(lock_in_child, NULL, 29, "locks");
    atomic_store(&over, 1);
    pthread_join(t, NULL);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

/* ---- locks that somebody waited for ---- */

static struct {
    weft_mutex m, with; /* `with` goes with c */
    weft_rwlock rw;
    weft_cond c;
    weft_sem s;
    weft_waitgroup g;
    weft_once o;
    weft_barrier b;
} wanted;
enum { WANTED = 7 };
static atomic_int wanting;
static pthread_t want_threads[WANTED];

static int never_twice(void *arg) {
    (void)arg;
    return 5;
}

/* Each of them is wanted by a task and by a plain thread. The condition is told to those only who wait by then: they count themselves with its mutex. */
static int want(void *which) {
    if (which != as_arg(2)) atomic_fetch_add(&wanting, 1);
    switch ((int)(intptr_t)which) {
    case 0:
        weft_mutex_lock(&wanted.m);
        weft_mutex_unlock(&wanted.m);
        break;
    case 1:
        weft_rwlock_wrlock(&wanted.rw);
        weft_rwlock_wrunlock(&wanted.rw);
        break;
    case 2:
        weft_mutex_lock(&wanted.with);
        atomic_fetch_add(&wanting, 1);
        CHECK_EQ(weft_cond_wait(&wanted.c, &wanted.with, WEFT_FOREVER), 0);
        weft_mutex_unlock(&wanted.with);
        break;
    case 3:
        CHECK_EQ(weft_sem_acquire(&wanted.s, WEFT_FOREVER), 0);
        break;
    case 4:
        CHECK_EQ(weft_waitgroup_wait(&wanted.g, WEFT_FOREVER), 0);
        break;
    case 5:
        CHECK_EQ(weft_once_run(&wanted.o, never_twice, NULL), 30);
        break;
    default:
        CHECK(weft_barrier_wait(&wanted.b, WEFT_FOREVER) >= 0);
    }
    return 0;
}

static void *want_thread(void *which) {
    want(which);
    return NULL;
}

/* Lets go of all that the thread which forked has, as the parent will. */
static void let_go(void) {
    weft_mutex_unlock(&wanted.m);
    weft_rwlock_wrunlock(&wanted.rw);
    weft_cond_broadcast(&wanted.c);
    weft_sem_release_n(&wanted.s, 2);
    weft_waitgroup_done(&wanted.g);
}

/* In the child nobody wants them: all is still there for itself. */
static int let_go_alone(void *arg) {
    (void)arg;
    let_go();
    weft_mutex_lock(&wanted.m);
    weft_mutex_unlock(&wanted.m);
    weft_rwlock_wrlock(&wanted.rw);
    weft_rwlock_wrunlock(&wanted.rw);
    CHECK_EQ(weft_sem_try(&wanted.s), 0);
    CHECK_EQ(weft_sem_acquire(&wanted.s, WEFT_FOREVER), 0);
    CHECK_EQ(weft_sem_acquire(&wanted.s, weft_after(1)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_waitgroup_wait(&wanted.g, WEFT_FOREVER), 0);
    CHECK_EQ(weft_barrier_wait(&wanted.b, WEFT_POLL), WEFT_EAGAIN); /* it would be the third */
    weft_mutex_destroy(&wanted.m);
    weft_rwlock_destroy(&wanted.rw);
    weft_cond_destroy(&wanted.c);
    weft_sem_destroy(&wanted.s);
    weft_waitgroup_destroy(&wanted.g);
    weft_barrier_destroy(&wanted.b);
    if (!NO_THREADS_AFTER_FORK) CHECK_EQ(run_on(2, work, as_arg(4)), 4);
    return 30;
}

static int fork_inside(void *arg) {
    (void)arg;
    for (int i = 0; i < WANTED; i++) {
        CHECK_EQ(weft_go(want, as_arg(i)), 0);
        CHECK_EQ(pthread_create(&want_threads[i], NULL, want_thread, as_arg(i)), 0);
    }
    thread_wait(&wanting, 2 * WANTED);
    test_until(others_sleep, NULL); /* all of them wait; or look so: under valgrind those do who wait for their turn to run */
    weft_mutex_lock(&wanted.with);  /* both wait for the condition */
    weft_mutex_unlock(&wanted.with);
    in_child(let_go_alone, NULL, 30, "alone");
    let_go();
    CHECK(weft_barrier_wait(&wanted.b, WEFT_FOREVER) >= 0);
    return 30;
}

TEST_T(fork, whoever_waited_for_a_lock_is_not_in_the_child, 120) {
    if (test_emulated()) test_skip("the emulator starts no thread in such a child");
    CHECK_EQ(set_up(2), 0);
    CHECK_EQ(weft_barrier_init(&wanted.b, 3), 0);
    weft_mutex_lock(&wanted.m);
    weft_rwlock_wrlock(&wanted.rw);
    weft_waitgroup_add(&wanted.g, 1);
    CHECK_EQ(weft_once_run(&wanted.o, fork_inside, NULL), 30);
    for (int i = 0; i < WANTED; i++) pthread_join(want_threads[i], NULL);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

static int lock_and_unlock(void *arg) {
    weft_mutex_lock(arg);
    weft_mutex_unlock(arg);
    return 0;
}
static void *lock_in_thread(void *m) {
    lock_and_unlock(m);
    return NULL;
}

/* One that was woken is not on its way here. */
static int wait_alone(void *m) {
    pthread_t t;
    weft_mutex_lock(m);
    CHECK_EQ(pthread_create(&t, NULL, lock_in_thread, m), 0);
    test_until(others_sleep, NULL);
    weft_mutex_unlock(m);
    pthread_join(t, NULL);
    return 31;
}

TEST(fork, whoever_was_woken_is_not_on_its_way_in_the_child) {
    if (NO_THREADS_AFTER_FORK) test_skip("no thread can be started in such a child");
    static weft_mutex m;
    weft__store(&weft__mutex_of(&m)->state, WEFT_WAITERS | WEFT_WOKEN, relaxed); /* the moment after an unlock */
    in_child(wait_alone, &m, 31, "woken");
}

/* ---- exit ---- */

static void at_exit(void) { printf("at exit\n"); }

static int exit_task(void *arg) {
    (void)arg;
    weft_yield();
    exit(27);
}

/* Others wait, run and compute meanwhile. */
static int exit_among_others(void *arg) {
    (void)arg;
    for (int i = 0; i < 20; i++) CHECK_EQ(weft_go(i % 2 ? wait_for_ever : spawn_for_ever, NULL), 0);
    CHECK_EQ(weft_go(exit_task, NULL), 0);
    return weft_sleep(WEFT_FOREVER);
}

static int run_exit(void *arg) {
    atexit(at_exit);
    return run_on((int)(intptr_t)arg, exit_among_others, NULL);
}

TEST(fork, exit_in_a_task_ends_the_process) {
    EACH_WORKERS(w) {
        struct test_child c;
        test_child(run_exit, as_arg(w), &c);
        CHECK_MSG(c.exit_code == 27 && !c.hung, "exit %d, signal %d:\n%s", c.exit_code, c.signal, c.out);
        CHECK_MSG(strstr(c.out, "at exit"), "%s", c.out);
    }
}

static int run_main_exit(void *arg) {
    CHECK_EQ(set_up((int)(intptr_t)arg), 0);
    for (int i = 0; i < 20; i++) CHECK_EQ(weft_go(i % 2 ? wait_for_ever : spawn_for_ever, NULL), 0);
    atexit(at_exit);
    return 28; /* from main, with everything running */
}

TEST(fork, exit_beside_a_running_runtime_ends_the_process) {
    EACH_WORKERS(w) {
        struct test_child c;
        test_child(run_main_exit, as_arg(w), &c);
        CHECK_MSG(c.exit_code == 28 && !c.hung, "exit %d, signal %d:\n%s", c.exit_code, c.signal, c.out);
    }
}

/* The first word of a child to weft is about a timer of the parent's. */
static int stop_timer_and_run(void *t) {
    if (weft_timer_stop(t)) return 1;
    return NO_THREADS_AFTER_FORK ? 0 : weft_run(return_int, as_arg(0), NULL);
}

static void never(void *arg) { (void)arg; }

TEST(fork, a_child_that_begins_with_a_timer_goes_on) {
    weft_timer t = {0};
    CHECK_EQ(set_up(2), 0);
    CHECK_EQ(weft_timer_start(&t, weft_after(HOUR), 0, never, NULL), 0);
    in_child(stop_timer_and_run, &t, 0, "a timer of the parent's");
    CHECK_EQ(weft_timer_stop(&t), 1);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

static void stop_at_exit(void) { printf("stop gives %d\n", weft_stop(WEFT_FOREVER)); }

static int run_stop_at_exit(void *arg) {
    (void)arg;
    CHECK_EQ(set_up(2), 0);
    for (int i = 0; i < 20; i++) CHECK_EQ(weft_go(wait_for_ever, NULL), 0);
    atexit(stop_at_exit);
    return 29;
}

TEST(fork, a_runtime_may_be_stopped_at_exit) {
    struct test_child c;
    test_child(run_stop_at_exit, NULL, &c);
    CHECK_MSG(c.exit_code == 29 && strstr(c.out, "stop gives 0"), "exit %d, signal %d:\n%s", c.exit_code, c.signal, c.out);
}
