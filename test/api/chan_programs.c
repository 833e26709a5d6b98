/* SPDX-License-Identifier: MIT */
/* Whole programs over channels, of the kind that Go tests its own with: the prime sieve, chains in order, operations that must not wait, two
 * selects against each other, power series, and a table of which operations block. */
#include "api/ints.h"

struct link {
    weft_chan *in, *out;
    int n;
};

static int spawn_link(weft_scope *s, weft_fn *fn, weft_chan *in, weft_chan *out, int n) {
    struct link l = {in, out, n};
    return weft_spawn_copy(s, fn, &l, sizeof l);
}

/* ---- the sieve ---- */

static int generate(void *arg) {
    struct link *l = arg;
    int rc = 0;
    for (int i = 2; rc == 0; i++) rc = weft_chan_send(l->out, &i, WEFT_FOREVER);
    return rc == WEFT_ECANCELED ? 0 : rc;
}

static int filter(void *arg) {
    struct link *l = arg;
    int v, rc = 0;
    while (rc == 0 && (rc = weft_chan_recv(l->in, &v, WEFT_FOREVER)) == 0)
        if (v % l->n) rc = weft_chan_send(l->out, &v, WEFT_FOREVER);
    return rc == WEFT_ECANCELED ? 0 : rc;
}

static bool is_prime(int v) {
    for (int d = 2; d * d <= v; d++)
        if (v % d == 0) return false;
    return v > 1;
}

static int sieve(void *arg) {
    enum { MOST = 100 };
    size_t capacity = (size_t)(intptr_t)arg;
    weft_chan *c[MOST + 1];
    int n = (int)test_scale(MOST, 20), last = 1;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    c[0] = new_chan(capacity);
    CHECK_EQ(spawn_link(&s, generate, NULL, c[0], 0), 0);
    for (int i = 0; i < n; i++) {
        int p = take(c[i]);
        for (int v = last + 1; v < p; v++) CHECK(!is_prime(v)); /* none is left out */
        CHECK(is_prime(p));
        last = p;
        c[i + 1] = new_chan(capacity);
        CHECK_EQ(spawn_link(&s, filter, c[i], c[i + 1], p), 0);
    }
    weft_scope_cancel(&s);
    (void)weft_scope_end(&s);
    for (int i = 0; i <= n; i++) weft_chan_unref(c[i]);
    return 0;
}

TEST(chan_programs, the_sieve_finds_the_primes) {
    EACH_WORKERS(w) {
        CHECK_EQ(run_on(w, sieve, as_arg(0)), 0);
        CHECK_EQ(run_on(w, sieve, as_arg(4)), 0);
    }
}

/* ---- first in, first out ---- */

enum { FIFO = 10 };

static int fifo_buffered(void *arg) {
    (void)arg;
    weft_chan *c = new_chan(FIFO);
    for (int i = 0; i < FIFO; i++) CHECK_EQ(weft_chan_send(c, &i, WEFT_POLL), 0);
    for (int i = 0; i < FIFO; i++) CHECK_EQ(take(c), i);
    weft_chan_unref(c);
    return 0;
}

/* Each link hands on what its predecessor said, and then says its own number. */
static int say_in_turn(void *arg) {
    struct link *l = arg;
    int before = take(l->in);
    CHECK_EQ(before, l->n - 1);
    return weft_chan_send(l->out, &l->n, WEFT_FOREVER);
}

static int fifo_chain(void *arg) {
    (void)arg;
    weft_chan *c[FIFO + 1];
    weft_scope s;
    weft_scope_begin(&s, NULL);
    c[0] = new_chan(0);
    for (int i = 0; i < FIFO; i++) {
        c[i + 1] = new_chan(0);
        CHECK_EQ(spawn_link(&s, say_in_turn, c[i], c[i + 1], i + 1), 0);
    }
    CHECK_EQ(weft_chan_send(c[0], &(int){0}, WEFT_FOREVER), 0);
    CHECK_EQ(take(c[FIFO]), FIFO);
    CHECK_EQ(weft_scope_end(&s), 0);
    for (int i = 0; i <= FIFO; i++) weft_chan_unref(c[i]);
    return 0;
}

TEST(chan_programs, chains_keep_the_order) {
    run_each(fifo_buffered);
    run_each(fifo_chain);
}

/* ---- operations that must not wait ---- */

static int meet_once(void *arg) {
    struct link *l = arg;
    if (l->in) return take(l->in) == l->n ? 0 : WEFT_EBROKEN;
    return weft_chan_send(l->out, &l->n, WEFT_FOREVER);
}

/* Without a partner they say so; with one that comes some time they succeed some time. */
static int non_blocking(void *arg) {
    (void)arg;
    for (size_t cap = 0; cap < 2; cap++) {
        weft_chan *c = new_chan(cap);
        weft_scope s;
        int v = 123, x = -1;
        CHECK_EQ(weft_chan_try_recv(c, &x), WEFT_EAGAIN);
        CHECK_EQ(weft_select(WEFT_POLL, weft_on_recv(c, &x, NULL)), WEFT_EAGAIN);
        CHECK_EQ(x, -1);
        if (cap) CHECK_EQ(weft_chan_try_send(c, &v), 0);
        CHECK_EQ(weft_chan_try_send(c, &v), WEFT_EAGAIN);
        CHECK_EQ(weft_select(WEFT_POLL, weft_on_send(c, &v)), WEFT_EAGAIN);
        if (cap) CHECK_EQ(take(c), 123);
        weft_scope_begin(&s, NULL);
        CHECK_EQ(spawn_link(&s, meet_once, NULL, c, 5), 0);
        while (weft_chan_try_recv(c, &x) == WEFT_EAGAIN) weft_yield();
        CHECK_EQ(x, 5);
        CHECK_EQ(spawn_link(&s, meet_once, c, NULL, 6), 0);
        v = 6;
        while (weft_select(WEFT_POLL, weft_on_send(c, &v)) == WEFT_EAGAIN) weft_yield();
        CHECK_EQ(weft_scope_end(&s), 0);
        weft_chan_unref(c);
    }
    return 0;
}

TEST(chan_programs, what_must_not_wait_does_not) { run_each(non_blocking); }

/* ---- two selects against each other ---- */

enum { LANES = 4 };
struct lanes {
    weft_chan *lane[LANES], *merged;
    int n;
};

static int send_by_select(void *arg) {
    struct lanes *l = arg;
    for (int i = 0; i < l->n; i++) {
        int rc = weft_select(WEFT_FOREVER, weft_on_send(l->lane[0], &i), weft_on_send(l->lane[1], &i),
                             weft_on_send(l->lane[2], &i), weft_on_send(l->lane[3], &i));
        CHECK(rc >= 0 && rc < LANES);
    }
    for (int i = 0; i < LANES; i++) weft_chan_close(l->lane[i]);
    return 0;
}

static int recv_by_select(void *arg) {
    struct lanes *l = arg;
    weft_chan *c[LANES];
    memcpy(c, l->lane, sizeof c);
    for (int left = LANES; left;) {
        int v[LANES];
        bool open[LANES];
        weft_case k[LANES];
        for (int i = 0; i < LANES; i++) k[i] = weft_on_recv(c[i], &v[i], &open[i]);
        int at = weft_selectv(k, LANES, WEFT_FOREVER);
        CHECK(at >= 0 && at < LANES);
        if (open[at]) {
            CHECK_EQ(weft_chan_send(l->merged, &v[at], WEFT_FOREVER), 0);
        } else {
            c[at] = NULL;
            left--;
        }
    }
    return weft_chan_close(l->merged);
}

static int double_select(void *arg) {
    (void)arg;
    struct lanes l = {.merged = new_chan(0), .n = (int)test_scale(20000, 1000)};
    char *seen = calloc((size_t)l.n, 1);
    int v, sum = 0;
    weft_scope s;
    for (int i = 0; i < LANES; i++) l.lane[i] = new_chan(0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, send_by_select, &l), 0);
    CHECK_EQ(weft_spawn(&s, recv_by_select, &l), 0);
    WEFT_CHAN_EACH(l.merged, &v) {
        CHECK(v >= 0 && v < l.n && !seen[v]);
        seen[v] = 1;
        sum++;
    }
    CHECK_EQ(sum, l.n);
    CHECK_EQ(weft_scope_end(&s), 0);
    for (int i = 0; i < LANES; i++) weft_chan_unref(l.lane[i]);
    weft_chan_unref(l.merged);
    free(seen);
    return 0;
}

TEST(chan_programs, two_selects_against_each_other_lose_nothing) { run_each(double_select); }

/* ---- power series: streams of coefficients, a task for each operation ---- */

typedef struct {
    int64_t num, den;
} ratio;

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a < 0 ? -a : a; }

static ratio make_ratio(int64_t num, int64_t den) {
    int64_t g = gcd(num, den);
    if (den < 0) g = -g;
    return (ratio){num / g, den / g};
}
static ratio plus(ratio a, ratio b) { return make_ratio(a.num * b.den + b.num * a.den, a.den * b.den); }
static ratio times(ratio a, ratio b) { return make_ratio(a.num * b.num, a.den * b.den); }

/* Series live as long as the scope that all tasks are children of, which is cancelled at the end. */
enum { SERIES_MAX = 256 };
static struct {
    weft_scope *scope;
    weft_chan *all[SERIES_MAX];
    atomic_int n;
} world;

static weft_chan *new_series(void) {
    weft_chan *c = weft_chan_new(sizeof(ratio), 0);
    int i = atomic_fetch_add(&world.n, 1);
    CHECK(c && i < SERIES_MAX);
    return world.all[i] = c;
}

struct op {
    weft_chan *a, *b, *out;
    ratio r;
};

/* A task that multiplies may still start others when the scope has been cancelled: they are refused, and it ends at its next GET or PUT. */
static void spawn_series(weft_fn *fn, void *arg, size_t size) {
    int rc = weft_spawn_copy(world.scope, fn, arg, size);
    CHECK_EQ(rc, rc && weft_cancelled() ? WEFT_ECANCELED : 0);
}

static weft_chan *start_op(weft_fn *fn, weft_chan *a, weft_chan *b, ratio r) {
    struct op o = {a, b, new_series(), r};
    spawn_series(fn, &o, sizeof o);
    return o.out;
}

/* Ends the task when the scope is cancelled. */
#define GET(c, v)                                                                                                              \
    if (weft_chan_recv(c, &(v), WEFT_FOREVER) < 0) return 0
#define PUT(c, v)                                                                                                              \
    if (weft_chan_send(c, &(v), WEFT_FOREVER) < 0) return 0

static int run_constant(void *arg) { /* r, r, r, … */
    struct op *o = arg;
    for (;;) PUT(o->out, o->r);
}

static int run_add(void *arg) {
    struct op *o = arg;
    for (ratio x, y;;) {
        GET(o->a, x);
        GET(o->b, y);
        x = plus(x, y);
        PUT(o->out, x);
    }
}

static int run_scale(void *arg) {
    struct op *o = arg;
    for (ratio x;;) {
        GET(o->a, x);
        x = times(x, o->r);
        PUT(o->out, x);
    }
}

static int run_integrate(void *arg) { /* with r as the constant */
    struct op *o = arg;
    PUT(o->out, o->r);
    for (int64_t n = 1;; n++) {
        ratio x;
        GET(o->a, x);
        x = times(x, (ratio){1, n});
        PUT(o->out, x);
    }
}

static int run_shift(void *arg) { /* times z */
    struct op *o = arg;
    ratio x = {0, 1};
    for (;;) {
        PUT(o->out, x);
        GET(o->a, x);
    }
}

/* One stream into two, which may be read at different speeds: a queue without a limit behind each. */
struct split {
    weft_chan *in, *out[2];
};
static int run_split(void *arg) {
    struct split *p = arg;
    for (ratio x;;) {
        GET(p->in, x);
        PUT(p->out[0], x);
        PUT(p->out[1], x);
    }
}
static void start_split(weft_chan *in, weft_chan *out[2]) {
    weft_chan_opts o = {.kind = WEFT_CHAN_UNLIMITED};
    for (int i = 0; i < 2; i++) {
        int at = atomic_fetch_add(&world.n, 1);
        CHECK(at < SERIES_MAX);
        world.all[at] = out[i] = weft_chan_new_opts(sizeof(ratio), &o);
    }
    struct split p = {in, {out[0], out[1]}};
    spawn_series(run_split, &p, sizeof p);
}

static weft_chan *mul(weft_chan *a, weft_chan *b);

/* (a0 + z A)(b0 + z B) = a0 b0 + z (a0 B + b0 A + z A B); the tail's tasks start when it is asked for. */
static int run_mul(void *arg) {
    struct op *o = arg;
    ratio a0, b0, x;
    GET(o->a, a0);
    GET(o->b, b0);
    x = times(a0, b0);
    PUT(o->out, x);
    weft_chan *a[2], *b[2];
    start_split(o->a, a);
    start_split(o->b, b);
    weft_chan *cross = start_op(run_add, start_op(run_scale, b[0], NULL, a0), start_op(run_scale, a[0], NULL, b0), x);
    GET(cross, x);
    PUT(o->out, x);
    weft_chan *deep = mul(a[1], b[1]);
    for (ratio y;;) {
        GET(cross, x);
        GET(deep, y);
        x = plus(x, y);
        PUT(o->out, x);
    }
}
static weft_chan *mul(weft_chan *a, weft_chan *b) { return start_op(run_mul, a, b, (ratio){0, 1}); }

static void expect(weft_chan *c, const ratio *want, int n) {
    for (int i = 0; i < n; i++) {
        ratio x;
        CHECK_EQ(weft_chan_recv(c, &x, WEFT_FOREVER), 0);
        CHECK_MSG(x.num == want[i].num && x.den == want[i].den, "coefficient %d: %lld/%lld", i, (long long)x.num,
                  (long long)x.den);
    }
}

/* exp is its own integral: its output comes back as its input. */
static int run_exp(void *arg) {
    struct op *o = arg;
    ratio x = {1, 1};
    PUT(o->out, x);
    for (int64_t n = 1;; n++) {
        weft_chan *back = o->a;
        PUT(back, x);
        GET(o->b, x);
        PUT(o->out, x);
    }
}

static int series(void *arg) {
    (void)arg;
    enum { N = 6 };
    const ratio one = {1, 1}, zero = {0, 1};
    weft_scope s;
    atomic_store(&world.n, 0);
    weft_scope_begin(&s, NULL);
    world.scope = &s;
    weft_chan *ones = start_op(run_constant, NULL, NULL, one), *twos = start_op(run_constant, NULL, NULL, (ratio){2, 1});
    expect(start_op(run_add, ones, twos, zero), (ratio[]){{3, 1}, {3, 1}, {3, 1}, {3, 1}}, 4);
    weft_chan *log = start_op(run_integrate, start_op(run_constant, NULL, NULL, one), NULL, zero);
    expect(log, (ratio[]){{0, 1}, {1, 1}, {1, 2}, {1, 3}, {1, 4}, {1, 5}}, N); /* -log(1 - z) */
    expect(start_op(run_shift, ones, NULL, zero), (ratio[]){{0, 1}, {1, 1}, {1, 1}}, 3);
    weft_chan *square = mul(start_op(run_constant, NULL, NULL, one), start_op(run_constant, NULL, NULL, one));
    expect(square, (ratio[]){{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}}, N); /* 1/(1 - z)^2 */
    weft_chan *back = new_series(), *exp_in = start_op(run_integrate, back, NULL, one);
    ratio first;
    CHECK_EQ(weft_chan_recv(exp_in, &first, WEFT_FOREVER), 0); /* the constant, which run_exp gives itself */
    expect(start_op(run_exp, back, exp_in, zero), (ratio[]){{1, 1}, {1, 1}, {1, 2}, {1, 6}, {1, 24}, {1, 120}}, N);
    weft_scope_cancel(&s);
    (void)weft_scope_end(&s);
    for (int i = 0; i < atomic_load(&world.n); i++) weft_chan_unref(world.all[i]);
    return 0;
}

TEST(chan_programs, power_series_add_multiply_and_integrate) { run_each(series); }

/* ---- which operations block ---- */

enum { OP_SEND, OP_RECV, OP_SELECT_SEND, OP_SELECT_RECV, OPS };

/* What each operation gives in each state: 0, an error, or BLOCKS. */
#define BLOCKS 1

static weft_chan *in_state(int kind, size_t cap, int fill, bool closed) {
    weft_chan_opts o = {.kind = kind, .capacity = cap};
    weft_chan *c = weft_chan_new_opts(sizeof(int), &o);
    for (int i = 0; i < fill; i++) CHECK_EQ(weft_chan_try_send(c, &i), 0);
    if (closed) CHECK_EQ(weft_chan_close(c), 0);
    return c;
}

static int operate(int op, weft_chan *c, weft_deadline deadline) {
    int v = 7;
    switch (op) {
    case OP_SEND:
        return weft_chan_send(c, &v, deadline);
    case OP_RECV:
        return weft_chan_recv(c, &v, deadline);
    case OP_SELECT_SEND:
        return weft_select(deadline, weft_on_send(c, &v));
    default:
        return weft_select(deadline, weft_on_recv(c, &v, NULL));
    }
}

struct blocked {
    int op;
    weft_chan *c;
    atomic_int begun, ended;
};
static int operate_for_ever(void *arg) {
    struct blocked *b = arg;
    atomic_store(&b->begun, 1);
    int rc = operate(b->op, b->c, WEFT_FOREVER);
    atomic_store(&b->ended, 1);
    return rc == WEFT_ECANCELED ? 0 : WEFT_EBROKEN;
}

/* It blocks: others run meanwhile, time does not end it, cancellation does, and nothing has happened. */
static void check_blocks(int op, weft_chan *c) {
    struct blocked b = {.op = op, .c = c};
    weft_chan_stats before, after;
    weft_scope s;
    if (c) weft_chan_stats_get(c, &before);
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    CHECK_EQ(weft_spawn(&s, operate_for_ever, &b), 0);
    task_wait_parked(&b.begun, 1);
    CHECK_EQ(atomic_load(&b.ended), 0);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&b.ended), 1);
    if (!c) return;
    weft_chan_stats_get(c, &after);
    CHECK_EQ(after.sent, before.sent);
    CHECK_EQ(after.received, before.received);
    CHECK_EQ(after.send_waiting + after.recv_waiting, 0);
}

static const struct {
    const char *what;
    int kind;
    size_t cap;
    int fill;
    bool closed;
    int send, recv;
} table[] = {
    {"rendezvous", WEFT_CHAN_BUFFERED, 0, 0, false, BLOCKS, BLOCKS},
    {"rendezvous, closed", WEFT_CHAN_BUFFERED, 0, 0, true, WEFT_ECLOSED, WEFT_ECLOSED},
    {"empty", WEFT_CHAN_BUFFERED, 2, 0, false, 0, BLOCKS},
    {"half full", WEFT_CHAN_BUFFERED, 2, 1, false, 0, 0},
    {"full", WEFT_CHAN_BUFFERED, 2, 2, false, BLOCKS, 0},
    {"empty, closed", WEFT_CHAN_BUFFERED, 2, 0, true, WEFT_ECLOSED, WEFT_ECLOSED},
    {"half full, closed", WEFT_CHAN_BUFFERED, 2, 1, true, WEFT_ECLOSED, 0},
    {"full, closed", WEFT_CHAN_BUFFERED, 2, 2, true, WEFT_ECLOSED, 0},
    {"unlimited, empty", WEFT_CHAN_UNLIMITED, 0, 0, false, 0, BLOCKS},
    {"unlimited, many", WEFT_CHAN_UNLIMITED, 0, 1000, false, 0, 0},
    {"unlimited, many, closed", WEFT_CHAN_UNLIMITED, 0, 1000, true, WEFT_ECLOSED, 0},
    {"latest, empty", WEFT_CHAN_LATEST, 0, 0, false, 0, BLOCKS},
    {"latest, full", WEFT_CHAN_LATEST, 1, 1, false, 0, 0},
    {"latest, full, closed", WEFT_CHAN_LATEST, 1, 1, true, WEFT_ECLOSED, 0},
};

static int go_through_table(void *arg) {
    (void)arg;
    for (size_t i = 0; i < COUNT(table); i++) {
        for (int op = 0; op < OPS; op++) {
            int want = op == OP_SEND || op == OP_SELECT_SEND ? table[i].send : table[i].recv;
            weft_chan *c = in_state(table[i].kind, table[i].cap, table[i].fill, table[i].closed);
            int poll = operate(op, c, WEFT_POLL);
            CHECK_MSG(poll == (want == BLOCKS ? WEFT_EAGAIN : want), "%s, operation %d: %d", table[i].what, op, poll);
            weft_chan_unref(c);
            c = in_state(table[i].kind, table[i].cap, table[i].fill, table[i].closed);
            if (want == BLOCKS)
                check_blocks(op, c);
            else
                CHECK_EQ(operate(op, c, WEFT_FOREVER), want);
            weft_chan_unref(c);
        }
    }
    check_blocks(OP_SELECT_SEND, NULL); /* disabled: as Go's nil channel */
    check_blocks(OP_SELECT_RECV, NULL);
    return 0;
}

TEST(chan_programs, what_blocks_and_what_does_not) { run_each(go_through_table); }
