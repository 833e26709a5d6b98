/* SPDX-License-Identifier: MIT */
/* What `make demo` runs: the main job, measured here and now, with OS threads doing the same beside it.
 *
 * Each step measures one thing for tasks and then for threads, and leaves rows of a table that is printed at the end. Where a
 * figure depends on luck, both sides get several rounds and the best one counts. */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <weft.h>

enum { STEPS = 5, BATCH = 1000, CRUNCHERS_MAX = 1024 };

/* Sizes and times of one run. */
static struct {
    size_t parked_tasks, parked_threads, spawned, trips, pieces, sensors;
    int64_t budget, deadline;
} plan = {100000, 10000, 1000000, 100000, 100000, 10000, WEFT_SECOND, 1500 * WEFT_MS};

static void plan_quick(void) {
    plan.parked_tasks = plan.pieces = 10000;
    plan.parked_threads = 500;
    plan.spawned = 100000;
    plan.trips = 10000;
    plan.sensors = 1000;
    plan.budget = 100 * WEFT_MS;
    plan.deadline = 300 * WEFT_MS;
}

/* ---- saying it ---- */

static bool live; /* stderr is a terminal */

/* A line that the next one overwrites; nothing where it could not be overwritten. */
static void WEFT_PRINTF(1, 2) progress(const char *fmt, ...) {
    if (!live) return;
    char line[100];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
}

static void progress_end(void) {
    if (live) fputs("\r\033[K", stderr);
}

static void step(int number, const char *what) {
    if (live)
        progress("[%d/%d] %s", number, STEPS, what);
    else
        fprintf(stderr, "[%d/%d] %s\n", number, STEPS, what);
}

typedef struct {
    char s[64];
} text;

static text WEFT_PRINTF(1, 2) say(const char *fmt, ...) {
    text t;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(t.s, sizeof t.s, fmt, ap);
    va_end(ap);
    return t;
}

static text count_text(size_t n) {
    char digits[32];
    text t = {{0}};
    int len = snprintf(digits, sizeof digits, "%zu", n);
    for (int i = 0, at = 0; i < len; i++) {
        t.s[at++] = digits[i];
        if ((len - i) % 3 == 1 && i + 1 < len) t.s[at++] = ',';
    }
    return t;
}

static text time_text(double ns) {
    if (ns < 1e3) return say("%.3g ns", ns);
    if (ns < 1e6) return say("%.3g us", ns / 1e3);
    if (ns < 1e9) return say("%.3g ms", ns / 1e6);
    return say("%.2f s", ns / 1e9);
}

static text bytes_text(double bytes) {
    if (bytes < 1024.0 * 1024) return say("%.1f KiB", bytes / 1024);
    if (bytes < 1024.0 * 1024 * 1024) return say("%.0f MiB", bytes / 1024 / 1024);
    return say("%.1f GiB", bytes / 1024 / 1024 / 1024);
}

static struct {
    const char *what, *read;
    text weft, threads;
} rows[16];
static int row_count;

static void row(const char *what, text weft, text threads, const char *read) {
    rows[row_count].what = what;
    rows[row_count].weft = weft;
    rows[row_count].threads = threads;
    rows[row_count++].read = read;
}

static void print_table(void) {
    printf("\n     %-34s %-24s %s\n", "", "weft tasks", "OS threads");
    for (int i = 0; i < row_count; i++)
        printf(" %2d  %-34s %-24s %s\n", i + 1, rows[i].what, rows[i].weft.s, rows[i].threads.s);
    printf("\nHow to read it\n");
    for (int i = 0; i < row_count; i++) printf(" %2d  %s\n", i + 1, rows[i].read);
}

/* ---- measuring ---- */

/* The number behind "Name:" in a file of /proc, in bytes; 0 if it is not there. */
static double proc_bytes(const char *path, const char *name) {
    FILE *f = fopen(path, "r");
    char line[256];
    double kib = 0;
    if (!f) return 0;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0 && sscanf(line + strlen(name), "%lf", &kib) == 1) break;
    fclose(f);
    return kib * 1024;
}

/* Resident memory of this process and the page tables for it. */
static double memory_now(void) {
    return proc_bytes("/proc/self/status", "VmRSS:") + proc_bytes("/proc/self/status", "VmPTE:");
}

/* Kernel stacks of the whole machine: threads have one each, which is not part of the process's memory. */
static double kernel_stacks_now(void) {
    return proc_bytes("/proc/meminfo", "KernelStack:");
}

/* Memory that this process may still take: what the machine has, or what its container allows. */
static double memory_left(void) {
    double left = proc_bytes("/proc/meminfo", "MemAvailable:"), limit;
    FILE *f = fopen("/sys/fs/cgroup/memory.max", "r");
    if (f && fscanf(f, "%lf", &limit) == 1 && limit < left) left = limit;
    if (f) fclose(f);
    return left;
}

static double cpu_now(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e9 + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e3;
}

static double best(double a, double b) {
    return a == 0 || b < a ? b : a;
}

/* ---- 1: many that wait ---- */

typedef struct {
    size_t asked, made;
    double create_ns, bytes, kernel_bytes, idle_cpu_ns, wake_ns;
    char why[48]; /* why not all were made */
} parked;

static atomic_size_t arrived;

static size_t arrived_now(void) {
    return atomic_load_explicit(&arrived, memory_order_relaxed); /* a counter, nothing hangs on it */
}

static int wait_at_gate(void *gate) {
    atomic_fetch_add_explicit(&arrived, 1, memory_order_relaxed);
    return weft_chan_recv(gate, NULL, WEFT_FOREVER) == WEFT_ECLOSED ? 0 : 1;
}

/* Waits until all that were accepted have come; returns when the last one came. Those that found no memory for a stack stay in
 * the queue until others end, so it gives up when nobody has come for a while. */
static int64_t await_arrivals(parked *p) {
    size_t seen = 0;
    int64_t last = weft_now();
    while (seen < p->made) {
        weft_sleep_for(WEFT_MS / 4);
        if (arrived_now() != seen) last = weft_now();
        seen = arrived_now();
        if (seen == p->made || weft_now() - last < WEFT_SECOND) continue;
        p->made = seen;
        snprintf(p->why, sizeof p->why, "no room for more");
    }
    return last;
}

/* Tasks that could not be made are counted, not fatal; those made so far go on. */
static int64_t spawn_parked(weft_scope *s, weft_chan *gate, parked *p) {
    for (; p->made < p->asked; p->made++) {
        if (weft_spawn(s, wait_at_gate, gate) < 0) {
            snprintf(p->why, sizeof p->why, "no room for more");
            break;
        }
        if (p->made % 5000 == 0) progress("[1/%d] %zu tasks", STEPS, p->made);
    }
    return await_arrivals(p);
}

static int park_tasks(void *arg) {
    parked *p = arg;
    weft_scope s;
    weft_chan *gate = weft_chan_new(0, 0);
    if (!gate) return WEFT_ENOMEM;
    double before = memory_now();
    int64_t start = weft_now();
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    p->create_ns = (double)(spawn_parked(&s, gate, p) - start);
    p->bytes = memory_now() - before;
    progress("[1/%d] %zu tasks are parked, each on a stack of its own", STEPS, p->made);
    double cpu = cpu_now();
    weft_sleep_for(plan.budget);
    p->idle_cpu_ns = cpu_now() - cpu;
    start = weft_now();
    weft_chan_close(gate);
    weft_scope_end(&s);
    p->wake_ns = (double)(weft_now() - start);
    weft_chan_unref(gate);
    return 0;
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *thread_at_gate(void *arg) {
    (void)arg;
    atomic_fetch_add_explicit(&arrived, 1, memory_order_relaxed);
    pthread_mutex_lock(&gate.lock);
    while (!gate.open) pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
    return NULL;
}

static void park_threads(parked *p) {
    static pthread_t id[10000];
    double before = memory_now(), kernel = kernel_stacks_now();
    int64_t start = weft_now();
    for (int err; p->made < p->asked; p->made++) {
        if ((err = pthread_create(&id[p->made], NULL, thread_at_gate, NULL)) != 0) {
            snprintf(p->why, sizeof p->why, "%s", err == EAGAIN ? "limit reached" : weft_strerror(-err));
            break;
        }
        if (p->made % 500 == 0) progress("[1/%d] %zu threads", STEPS, p->made);
    }
    while (arrived_now() < p->made) weft_sleep_for(WEFT_MS / 4);
    p->create_ns = (double)(weft_now() - start);
    p->bytes = memory_now() - before;
    p->kernel_bytes = kernel_stacks_now() - kernel;
    start = weft_now();
    pthread_mutex_lock(&gate.lock);
    gate.open = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
    for (size_t i = 0; i < p->made; i++) pthread_join(id[i], NULL);
    p->wake_ns = (double)(weft_now() - start);
}

static text made_text(const parked *p) {
    return p->why[0] ? say("%s (%s)", count_text(p->made).s, p->why) : count_text(p->made);
}

static text each_text(const parked *p, double all, text (*unit)(double)) {
    return p->made ? unit(all / (double)p->made) : say("-");
}

static void rows_of_parked(const parked *w, const parked *t) {
    double grow = t->made ? (double)w->made / (double)t->made : 0;
    row("waiting at the same time", made_text(w), made_text(t), "So many were made and waited; where fewer than planned, why.");
    row("  time to make one", each_text(w, w->create_ns, time_text), each_text(t, t->create_ns, time_text),
        "From the first call until the last one waits, divided by their number.");
    row("  memory for one", each_text(w, w->bytes, bytes_text),
        t->made ? say("%s + %s kernel", each_text(t, t->bytes, bytes_text).s, each_text(t, t->kernel_bytes, bytes_text).s)
                : say("-"),
        "Growth of VmRSS + VmPTE; a thread's kernel stack (KernelStack in /proc/meminfo) comes on top.");
    row("  all of them", say("%s, %s", time_text(w->create_ns).s, bytes_text(w->bytes).s),
        t->made ? say("%s, %s (projected)", time_text(t->create_ns * grow).s, bytes_text((t->bytes + t->kernel_bytes) * grow).s)
                : say("-"),
        "As many threads as there were tasks: not run, only multiplied.");
    row("  CPU used while all wait", say("%s in %s", time_text(w->idle_cpu_ns).s, time_text((double)plan.budget).s), say("-"),
        "CPU time of the whole process while every task waits.");
    row("  wake and end one", each_text(w, w->wake_ns, time_text), each_text(t, t->wake_ns, time_text),
        "One close (or broadcast) wakes all; until the last has ended and was joined, divided by their number.");
}

static int measure_parked(void) {
    parked w = {.asked = plan.parked_tasks}, t = {.asked = plan.parked_threads};
    double room = memory_left() / 4;
    if (room > 0 && room / 8192 < (double)w.asked) w.asked = (size_t)(room / 8192) + 1; /* twice what a task is known to take */
    step(1, "many that wait: tasks, then threads");
    int err = weft_block_on(park_tasks, &w);
    if (err) return err;
    if (plan.sensors > w.made / 2) plan.sensors = w.made / 2; /* little memory: step 5 has to fit too */
    atomic_store_explicit(&arrived, 0, memory_order_relaxed);
    park_threads(&t);
    rows_of_parked(&w, &t);
    return 0;
}

/* ---- 2: spawn and join ---- */

static int nothing(void *arg) {
    (void)arg;
    return 0;
}

static int spawn_and_join(void *result) {
    double *ns = result;
    for (int64_t begun = weft_now(), start = begun; start - begun < plan.budget;) {
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (size_t i = 0; i < plan.spawned; i++) weft_spawn(&s, nothing, NULL);
        int err = weft_scope_end(&s);
        if (err) return err;
        int64_t end = weft_now();
        *ns = best(*ns, (double)(end - start) / (double)plan.spawned);
        start = end;
        progress("[2/%d] spawn and join: %s a task", STEPS, time_text(*ns).s);
    }
    return 0;
}

static void *thread_nothing(void *arg) {
    return arg;
}

/* Rounds of BATCH threads that are all made before the first is joined; *made is the largest round that could be had. */
static double create_and_join(size_t *made) {
    static pthread_t id[BATCH];
    double ns = 0;
    for (int64_t begun = weft_now(), start = begun; start - begun < plan.budget;) {
        size_t n = 0;
        while (n < BATCH && pthread_create(&id[n], NULL, thread_nothing, NULL) == 0) n++;
        for (size_t i = 0; i < n; i++) pthread_join(id[i], NULL);
        if (n == 0) return 0;
        int64_t end = weft_now();
        ns = best(ns, (double)(end - start) / (double)n);
        *made = n > *made ? n : *made;
        start = end;
        progress("[2/%d] create and join: %s a thread", STEPS, time_text(ns).s);
    }
    return ns;
}

static int measure_spawn(void) {
    double w = 0;
    size_t made = 0;
    step(2, "spawn and join: tasks, then threads");
    int err = weft_block_on(spawn_and_join, &w);
    if (err) return err;
    double t = create_and_join(&made);
    row("spawn and join", say("%s (of %s)", time_text(w).s, count_text(plan.spawned).s),
        made ? say("%s (of %s)", time_text(t).s, count_text(made).s) : say("no thread could be made"),
        "Start an empty one, run it, join it; so many are started before the join. A task gets a stack only if it needs one.");
    return 0;
}

/* ---- 3: ping-pong ---- */

typedef struct {
    weft_chan *ping, *pong;
} table;

static int return_balls(void *arg) {
    table *t = arg;
    int ball;
    WEFT_CHAN_EACH(t->ping, &ball) {
        if (weft_chan_send(t->pong, &ball, WEFT_FOREVER) < 0) break;
    }
    return 0;
}

static int play(const table *t, double *ns) {
    for (int64_t begun = weft_now(), start = begun; start - begun < plan.budget;) {
        for (size_t i = 0; i < plan.trips; i++) {
            int ball = 1, err = weft_chan_send(t->ping, &ball, WEFT_FOREVER);
            if (!err) err = weft_chan_recv(t->pong, &ball, WEFT_FOREVER);
            if (err) return err;
        }
        int64_t end = weft_now();
        *ns = best(*ns, (double)(end - start) / (double)plan.trips);
        start = end;
        progress("[3/%d] ping-pong: %s a round trip between tasks", STEPS, time_text(*ns).s);
    }
    return 0;
}

static int play_tasks(void *ns) {
    table t = {weft_chan_new(sizeof(int), 0), weft_chan_new(sizeof(int), 0)};
    int err = WEFT_ENOMEM;
    if (t.ping && t.pong) {
        weft_scope s;
        weft_scope_begin(&s, NULL);
        weft_spawn(&s, return_balls, &t);
        err = play(&t, ns);
        weft_chan_close(t.ping);
        int end = weft_scope_end(&s);
        if (!err) err = end;
    }
    weft_chan_unref(t.ping);
    weft_chan_unref(t.pong);
    return err;
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t to[2];
    int turn; /* 0, 1; 2 = the game is over */
} game = {PTHREAD_MUTEX_INITIALIZER, {PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER}, 0};

/* Waits for our turn and gives it to the other; false: over. Called with the lock. */
static bool pass_turn(int me) {
    while (game.turn == !me) pthread_cond_wait(&game.to[me], &game.lock);
    if (game.turn != me) return false;
    game.turn = !me;
    pthread_cond_signal(&game.to[!me]);
    return true;
}

static void *thread_returns(void *arg) {
    pthread_mutex_lock(&game.lock);
    while (pass_turn(1)) continue;
    pthread_mutex_unlock(&game.lock);
    return arg;
}

/* Nanoseconds a round trip; 0: there is no second thread. */
static double play_threads(void) {
    pthread_t other;
    double ns = 0;
    if (pthread_create(&other, NULL, thread_returns, NULL) != 0) return 0;
    size_t trips = plan.trips / 10;
    pthread_mutex_lock(&game.lock);
    for (int64_t begun = weft_now(), start = begun; start - begun < plan.budget;) {
        for (size_t i = 0; i < trips; i++) pass_turn(0);
        int64_t end = weft_now();
        ns = best(ns, (double)(end - start) / (double)trips);
        start = end;
        progress("[3/%d] ping-pong: %s a round trip between threads", STEPS, time_text(ns).s);
    }
    game.turn = 2;
    pthread_cond_signal(&game.to[1]);
    pthread_mutex_unlock(&game.lock);
    pthread_join(other, NULL);
    return ns;
}

static int measure_pingpong(void) {
    double w = 0;
    step(3, "ping-pong: tasks, then threads");
    int err = weft_block_on(play_tasks, &w);
    if (err) return err;
    double t = play_threads();
    row("ping-pong, a round trip", time_text(w), t > 0 ? time_text(t) : say("no thread could be made"),
        "There and back: two unbuffered channels between tasks; a mutex and condition variables between threads.");
    return 0;
}

/* ---- 4: all cores ---- */

static uint64_t piece[100000];

/* Some 10 microseconds of arithmetic. */
static int crunch(void *arg) {
    uint64_t x = (uintptr_t)arg, *out = arg;
    for (int i = 0; i < 8000; i++) x = x * 6364136223846793005u + 1442695040888963407u;
    *out = x;
    return 0;
}

static int crunch_tasks(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (size_t i = 0; i < plan.pieces; i++) weft_spawn(&s, crunch, &piece[i]);
    return weft_scope_end(&s);
}

typedef struct {
    size_t from, to;
} range;

static void *crunch_range(void *arg) {
    range *r = arg;
    for (size_t i = r->from; i < r->to; i++) crunch(&piece[i]);
    return NULL;
}

/* As many threads as cores, each with its share: the least overhead there can be. Shares without a thread are done here. */
static void crunch_threads(size_t n) {
    static pthread_t id[CRUNCHERS_MAX];
    static range share[CRUNCHERS_MAX];
    bool made[CRUNCHERS_MAX];
    for (size_t i = 0; i < n; i++) {
        share[i] = (range){plan.pieces * i / n, plan.pieces * (i + 1) / n};
        made[i] = pthread_create(&id[i], NULL, crunch_range, &share[i]) == 0;
        if (!made[i]) crunch_range(&share[i]);
    }
    for (size_t i = 0; i < n; i++)
        if (made[i]) pthread_join(id[i], NULL);
}

static text cores_text(double wall, double cpu) {
    return say("%s, %.2f cores busy", time_text(wall).s, cpu / wall);
}

static int measure_cores(void) {
    weft_stats stats;
    weft_stats_get(&stats);
    size_t n = stats.slots < CRUNCHERS_MAX ? (size_t)stats.slots : CRUNCHERS_MAX;
    step(4, "all cores: tasks, then threads");
    double cpu = cpu_now();
    int64_t start = weft_now();
    int err = weft_block_on(crunch_tasks, NULL);
    if (err) return err;
    text w = cores_text((double)(weft_now() - start), cpu_now() - cpu);
    cpu = cpu_now();
    start = weft_now();
    crunch_threads(n);
    static text what;
    what = say("%.20s pieces of work", count_text(plan.pieces).s);
    row(what.s, w, cores_text((double)(weft_now() - start), cpu_now() - cpu),
        "A task for each piece beside one thread a core with its share; cores busy = CPU time / time, less when others use "
        "them.");
    return 0;
}

/* ---- 5: a pipeline that is cut off ---- */

typedef struct {
    weft_chan *raw, *good;
    atomic_size_t sent, cleaned_up;
    size_t collected, quiet;
} plant;

/* Reads every 50 to 150 ms, until told to stop. */
static int sensor(void *arg) {
    plant *p = arg;
    int err = 0;
    for (int64_t r = (int64_t)(weft_self() * 2654435761u % 100); !err; r = r * 31 % 101) {
        err = weft_sleep_for((50 + r) * WEFT_MS);
        if (!err) err = weft_chan_send(p->raw, &r, WEFT_FOREVER);
        if (!err) atomic_fetch_add_explicit(&p->sent, 1, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&p->cleaned_up, 1, memory_order_relaxed); /* no unwinding: this line always runs */
    return err;
}

/* Passes every other reading on. */
static int filter(void *arg) {
    plant *p = arg;
    int64_t r;
    int err;
    while ((err = weft_chan_recv(p->raw, &r, WEFT_FOREVER)) == 0)
        if (r % 2 == 0 && (err = weft_chan_send(p->good, &r, WEFT_FOREVER)) < 0) break;
    atomic_fetch_add_explicit(&p->cleaned_up, 1, memory_order_relaxed);
    return err;
}

/* Collects, and counts the times when nothing came for 5 ms. */
static int collect(plant *p) {
    int64_t r;
    int which;
    while ((which = weft_select(weft_after(5 * WEFT_MS), weft_on_recv(p->good, &r, NULL))) >= 0 || which == WEFT_ETIMEDOUT) {
        if (which < 0) {
            p->quiet++;
        } else if (++p->collected % 1000 == 0) {
            progress("[5/%d] %zu readings", STEPS, p->collected);
        }
    }
    return which;
}

static int run_plant(void *arg) {
    plant *p = arg;
    weft_scope s;
    weft_deadline deadline = weft_after(plan.deadline);
    weft_scope_begin(&s, &(weft_scope_opts){.deadline = deadline});
    for (int i = 0; i < 4; i++) weft_spawn(&s, filter, p);
    for (size_t i = 0; i < plan.sensors; i++) weft_spawn(&s, sensor, p);
    int seen = collect(p), cause = weft_cancel_cause(), end = weft_scope_end(&s);
    double late = (double)(weft_now() - deadline.ns);
    progress_end();
    printf("\nA pipeline that is cut off: %s sensor tasks, 4 filters, 1 collector in a scope with a deadline of %s.\n",
           count_text(plan.sensors).s, time_text((double)plan.deadline).s);
    printf("  %s readings were sent, %s collected; %s times none came for 5 ms.\n",
           count_text(atomic_load_explicit(&p->sent, memory_order_relaxed)).s, count_text(p->collected).s,
           count_text(p->quiet).s);
    printf("  The collector's select returned \"%s\", cause \"%s\"; weft_scope_end: \"%s\".\n", weft_strerror(seen),
           weft_strerror(cause), weft_strerror(end));
    printf("  %s tasks were told, ran their clean-up and were joined %s after the deadline.\n",
           count_text(atomic_load_explicit(&p->cleaned_up, memory_order_relaxed)).s, time_text(late).s);
    return end == WEFT_ETIMEDOUT ? 0 : end;
}

static int show_pipeline(void) {
    plant p = {.raw = weft_chan_new(sizeof(int64_t), 64), .good = weft_chan_new(sizeof(int64_t), 64)};
    step(5, "a pipeline with a deadline");
    int err = p.raw && p.good ? weft_block_on(run_plant, &p) : WEFT_ENOMEM;
    weft_chan_unref(p.raw);
    weft_chan_unref(p.good);
    return err;
}

/* ---- all of it ---- */

static void print_stats(void) {
    static const char *const guards[] = {"none", "canaries", "protected pages", "guard regions"};
    weft_stats s;
    weft_stats_get(&s);
    printf("\nThe runtime's own counters (weft_stats)\n");
    printf("  slots %d, worker threads %d; stacks made %llu, mappings for them %llu, guarded by %s\n", s.slots, s.threads,
           (unsigned long long)s.stacks, (unsigned long long)s.stack_mappings, guards[s.stack_guards & 3]);
    printf("  tasks taken by another core %llu; workers woken %llu, put to sleep %llu; slots taken over %llu\n",
           (unsigned long long)s.steals, (unsigned long long)s.wakes, (unsigned long long)s.sleeps,
           (unsigned long long)s.takeovers);
}

static int run_all(void) {
    int err = measure_parked();
    if (!err) err = measure_spawn();
    if (!err) err = measure_pingpong();
    if (!err) err = measure_cores();
    if (!err) err = show_pipeline();
    progress_end();
    if (err) return err;
    print_table();
    print_stats();
    return 0;
}

static int usage(FILE *out, int status) {
    fprintf(out, "usage: demo [--quick]\n"
                 "  Measures tasks beside OS threads on this machine, in about ten seconds: many that wait,\n"
                 "  spawn and join, ping-pong, all cores; then shows a pipeline with a deadline.\n"
                 "  --quick  smaller sizes, about a second\n");
    return status;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--help") == 0) return usage(stdout, 0);
    if (argc == 2 && strcmp(argv[1], "--quick") == 0) {
        plan_quick();
    } else if (argc != 1) {
        return usage(stderr, 2);
    }
    live = isatty(STDERR_FILENO);
    int err = weft_start(NULL);
    if (err) {
        fprintf(stderr, "demo: the runtime does not start: %s\n", weft_strerror(err));
        return 1;
    }
    weft_stats stats;
    weft_stats_get(&stats);
    printf("weft %s, %d at a time (the CPUs this process may use)\n", weft_version(), stats.slots);
    fflush(stdout);
    err = run_all();
    int stop = weft_stop(WEFT_FOREVER);
    if (!err) err = stop;
    if (err) fprintf(stderr, "demo: %s\n", weft_strerror(err));
    return err ? 1 : 0;
}
