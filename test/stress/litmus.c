/* SPDX-License-Identifier: MIT */
/* Litmus tests: one for each protocol by which threads of the runtime publish something to each other. docs/memory-order.md lists
 * the protocols, with their orders and where they stand.
 *
 * Each test has an outcome that the protocol forbids, and looks for it in many rounds in which the threads meet within nanoseconds.
 * They use the runtime's own primitives, without a runtime around them. What they can show depends on the machine: x86-64 delays
 * stores beyond later loads, so there (and in an emulator that runs on it) the Dekker tests bite; AArch64 also reorders stores with
 * stores and loads with loads, and there all of them do. ThreadSanitizer knows no reordering, but every payload here is plain memory,
 * so it sees an order that is declared too weak to publish it, on any machine. */
#include <pthread.h>
#include <sched.h>

#include "api/common.h"
#include "sched/idle.h"
#include "sched/runq.h"
#include "task/task.h"

/* ---- rounds ---- */

enum { PARTIES_MAX = 3, SECONDS = 10 };
typedef void role(long round);
typedef struct {
    void (*before)(long round), (*after)(long round); /* alone; NULL: nothing to do */
    role *roles[PARTIES_MAX];                         /* at once */
    int parties;
    long rounds;
} game;

static struct {
    WEFT_ALIGNED atomic_int arrived;
    WEFT_ALIGNED atomic_long turn;
    const game *game;
    int64_t end; /* of the time that is spent at most: where CPUs are few, a meeting takes long */
    long played;
    bool over;
} table;

static void pause_or_yield(int i) {
    if (i % 256 < 255)
        weft__cpu_relax();
    else
        sched_yield(); /* the others may have no CPU */
}

static void meet(void) {
    long turn = atomic_load(&table.turn);
    if (atomic_fetch_add(&table.arrived, 1) + 1 == table.game->parties) {
        atomic_store(&table.arrived, 0);
        atomic_store(&table.turn, turn + 1);
    }
    for (int i = 0; atomic_load(&table.turn) == turn; i++) pause_or_yield(i);
}

/* A few nanoseconds, so that the parties do not always meet in the same way. */
static void jitter(uint64_t *random) {
    for (uint64_t i = test_below(random, 64); i > 0; i--) __asm__ volatile("");
}

static void take_part(int party) {
    const game *g = table.game;
    uint64_t random = test_seed() + (uint64_t)party;
    for (long round = 1; round <= g->rounds; round++) {
        if (party == 0 && g->before) g->before(round);
        if (party == 0) table.over = test_clock_ns() > table.end;
        meet();
        if (table.over) return;
        jitter(&random);
        g->roles[party](round);
        meet();
        if (party == 0 && g->after) g->after(round);
        if (party == 0) table.played = round;
    }
}

static void *other_party(void *arg) {
    take_part((int)(intptr_t)arg);
    return NULL;
}

static void play(const game *g) {
    pthread_t t[PARTIES_MAX];
    test_seed(); /* printed before anything can go wrong */
    table.game = g;
    table.end = test_clock_ns() + test_scale(SECONDS, SECONDS) * WEFT_SECOND;
    for (int i = 1; i < g->parties; i++) CHECK_EQ(pthread_create(&t[i], NULL, other_party, as_arg(i)), 0);
    take_part(0);
    for (int i = 1; i < g->parties; i++) CHECK_EQ(pthread_join(t[i], NULL), 0);
    printf("%ld rounds of %ld\n", table.played, g->rounds);
    CHECK_GT(table.played, 0);
}

static void *zeroed(size_t size) {
    void *p = aligned_alloc(WEFT_LINE, (size + WEFT_LINE - 1) / WEFT_LINE * WEFT_LINE);
    CHECK(p);
    return memset(p, 0, size);
}

/* n slots without a runtime, as thieves and producers see them. */
static void make_slots(int n) {
    weft__rt.many = true;
    weft__rt.slots = n;
    weft__rt.slot = zeroed((size_t)n * sizeof(weft__slot));
}

static void free_slots(void) {
    free(weft__rt.slot);
    weft__rt.slot = NULL;
}

/* ---- message passing: whoever is resumed sees what was done for it ----
 *
 * Forbidden: the waiter is resumed, and its result or the element is still the old one. */

static struct {
    WEFT_ALIGNED weft__thread waiter;
    WEFT_ALIGNED long elem; /* plain, on another line than what publishes it */
} mail;

static void mail_prepare(long round) {
    (void)round;
    weft__thread_ready(&mail.waiter);
}

static void mail_send(long round) {
    mail.elem = round;
    mail.waiter.b.result = (int32_t)round;
    weft__resume(&mail.waiter.b, NULL);
}

/* The look before is without any order: it only keeps the kernel out of it. */
static void mail_receive(long round) {
    for (int i = 0; !weft__load(&mail.waiter.woken, relaxed); i++) pause_or_yield(i);
    weft__thread_sleep(&mail.waiter, 0);
    CHECK_EQ(mail.elem, round);
    CHECK_EQ(mail.waiter.b.result, (int32_t)round);
}

TEST(litmus, message_passing) {
    mail.waiter.b.kind = WEFT_BLOCK_THREAD;
    play(&(game){mail_prepare, NULL, {mail_send, mail_receive}, 2, test_scale(50000, 2000)});
}

/* ---- the short lock ----
 *
 * Forbidden: the holder sees one half of what the last one did, or an increment is lost. */

static struct {
    weft__lock lock;
    WEFT_ALIGNED long a;
    WEFT_ALIGNED long b;
} vault;

static void vault_change(long round) {
    (void)round;
    for (int i = 0; i < 100; i++) {
        weft__lock_take(&vault.lock);
        long a = vault.a++, b = vault.b++;
        weft__lock_leave(&vault.lock);
        CHECK_EQ(a, b);
    }
}

TEST(litmus, the_lock_passes_everything_on) {
    play(&(game){NULL, NULL, {vault_change, vault_change, vault_change}, 3, test_scale(4000, 200)});
    CHECK_EQ(vault.a, 300 * table.played);
}

/* ---- Dekker of the idle path ----
 *
 * Forbidden: the producer sees nobody idle, and the worker that goes idle sees no work. */

static weft__task item; /* what is pushed */
static bool saw_idle, saw_work, saw_more;

static void idle_prepare(long round) {
    (void)round;
    weft__store(&weft__rt.idle, 0, relaxed); /* the meeting orders it */
    weft__store(&weft__rt.searching, 0, relaxed);
}

static void idle_produce(long round) {
    (void)round;
    weft__ring_push(&weft__rt.slot[0], &item);
    saw_idle = weft__wake_wanted();
}

/* As weft__idle and slot_push do. */
static void idle_sleep(long round) {
    (void)round;
    weft__add(&weft__rt.idle, 1, seq_cst); /* pairs with weft__wake_wanted */
    weft__heavy_barrier();
    saw_work = weft__idle_work_waits(NULL, 2);
}

static void idle_check(long round) {
    CHECK_MSG(saw_idle || saw_work, "round %ld: the worker sleeps, and the producer does not know", round);
    CHECK_PTR(weft__ring_pop(&weft__rt.slot[0]), &item);
}

static int idle_dekker(void *fences) {
    if (fences) setenv("WEFT_NO_MEMBARRIER", "1", 1);
    weft__barrier_init();
    CHECK(!fences || weft__fences);
    make_slots(2);
    play(&(game){idle_prepare, idle_check, {idle_sleep, idle_produce}, 2, test_scale(50000, 2000)});
    free_slots();
    return 0;
}

TEST(litmus, no_wake_up_is_lost_with_membarrier) { CHECK_CHILD(idle_dekker); }
TEST(litmus, no_wake_up_is_lost_with_fences) { CHECK_CHILD_ARG(idle_dekker, as_arg(1)); }

/* The producer relies on a searcher, who is just about to stop. Forbidden: and nobody looks. */

static void search_prepare(long round) {
    (void)round;
    weft__store(&weft__rt.idle, 0, relaxed); /* the meeting orders it */
    weft__store(&weft__rt.searching, 1, relaxed);
}

/* As `found` in find.c does. */
static void search_stop(long round) {
    (void)round;
    saw_more = false;
    weft__sub(&weft__rt.searching, 1, seq_cst); /* pairs with weft__wake_wanted */
    weft__fence_after_rmw();
    if (weft__load(&weft__rt.idle, relaxed) == 0) return;
    weft__heavy_barrier();
    saw_more = weft__idle_work_waits(NULL, 1);
}

static void search_check(long round) {
    CHECK_MSG(saw_idle || saw_work || saw_more, "round %ld: nobody knows of the work", round);
    CHECK_PTR(weft__ring_pop(&weft__rt.slot[0]), &item);
}

static int searcher_stops(void *fences) {
    if (fences) setenv("WEFT_NO_MEMBARRIER", "1", 1);
    weft__barrier_init();
    make_slots(2);
    play(&(game){search_prepare, search_check, {idle_sleep, idle_produce, search_stop}, 3, test_scale(20000, 1000)});
    free_slots();
    return 0;
}

TEST(litmus, a_searcher_that_stops_leaves_no_work_behind_with_membarrier) { CHECK_CHILD(searcher_stops); }
TEST(litmus, a_searcher_that_stops_leaves_no_work_behind_with_fences) { CHECK_CHILD_ARG(searcher_stops, as_arg(1)); }

/* ---- publishing on the queues ----
 *
 * Forbidden: a thief gets a task or record and not what was written into it before it was pushed; one is taken twice, or never. */

enum { CELLS = 1024, BATCH = 128, KEY = 0x5eed }; /* a batch does not fill a queue */

static weft__task cells[CELLS];
static atomic_uchar busy[CELLS]; /* 1 from before the push until it was taken and looked at */
static atomic_long taken, stolen;
static _Atomic long pushed_round; /* relaxed throughout: it must not publish what the queues have to */
static long pushed;

static void look_at(weft__task *t) {
    ptrdiff_t i = t - cells;
    CHECK_MSG(i >= 0 && i < CELLS, "%p is no task", (void *)t);
    CHECK_MSG(t->id == ((uint64_t)(uintptr_t)t->arg ^ KEY), "task %d was not written when it was taken", (int)i);
    t->id = 0;
    CHECK_MSG(atomic_exchange(&busy[i], 0) == 1, "task %d was taken twice", (int)i);
    atomic_fetch_add(&taken, 1);
}

static uint64_t owner_random; /* the owner's: it makes its pushes last as long as the thieves need to come by */

static void ring_push(long round) {
    weft__slot *s = &weft__rt.slot[0];
    for (int i = 0; i < BATCH; i++) {
        size_t at = (size_t)(round * BATCH + i) % CELLS;
        if (atomic_load(&busy[at])) continue;
        atomic_store(&busy[at], 1);
        cells[at].arg = as_arg(round);
        cells[at].id = (uint64_t)round ^ KEY;
        weft__ring_push(s, &cells[at]);
        pushed++;
        weft__task *t = round % 2 && i % 3 == 0 ? weft__ring_pop(s) : NULL;
        if (t) look_at(t);
        jitter(&owner_random);
    }
    weft__store(&pushed_round, round, relaxed); /* a hint for the thieves */
}

/* Until everything was pushed and the ring is empty. */
static void ring_steal_into(weft__slot *mine, long round) {
    bool last = false;
    for (int i = 0;; i++) {
        weft__task *t = weft__ring_steal(mine, &weft__rt.slot[0]);
        if (!t && last) return;
        if (!t) pause_or_yield(i);
        last = weft__load(&pushed_round, relaxed) == round;
        for (; t; t = weft__ring_pop(mine)) {
            atomic_fetch_add_explicit(&stolen, 1, memory_order_relaxed);
            look_at(t);
        }
    }
}

static void ring_steal_1(long round) { ring_steal_into(&weft__rt.slot[1], round); }
static void ring_steal_2(long round) { ring_steal_into(&weft__rt.slot[2], round); }

static void queues_check(long round) { CHECK_MSG(atomic_load(&taken) == pushed, "round %ld: a task was lost", round); }

TEST(litmus, the_ring_publishes_its_tasks) {
    make_slots(3);
    play(&(game){NULL, queues_check, {ring_push, ring_steal_1, ring_steal_2}, 3, test_scale(5000, 300)});
    printf("%ld tasks, %ld of them stolen\n", pushed, atomic_load(&stolen));
    CHECK_GT(atomic_load(&stolen), 0);
    free_slots();
}

/* ---- generation reuse ----
 *
 * Records go through the deque and come back through the slab, from other threads. Forbidden: as above; a record that still has the
 * id of an earlier life when it is stolen; an id, seen through a pointer that may be stale, that was never given. */

static weft__slab records = {.size = sizeof(weft__fresh)};
static _Atomic uint64_t newest;

static void look_at_record(weft__fresh *f) {
    uint64_t id = weft__load(&f->id, relaxed); /* the deque orders it */
    CHECK_MSG(id == (uint64_t)(uintptr_t)f->arg && id == ((uint64_t)(uintptr_t)f->site ^ KEY), "record %llu is half written",
              (unsigned long long)id);
    f->arg = NULL; /* who takes it a second time sees it */
    atomic_fetch_add(&taken, 1);
    weft__slab_put(&records, f);
}

static void deque_push(long round) {
    weft__slot *s = &weft__rt.slot[0];
    for (int i = 0; i < BATCH; i++) {
        weft__fresh *f = weft__cache_get(&records, &s->fresh);
        CHECK(f);
        uint64_t id = atomic_fetch_add(&s->last_id, 1) + 1;
        weft__store(&newest, id, relaxed); /* before the record's, by the release of the push */
        weft__store(&f->id, id, relaxed);
        f->arg = (void *)(uintptr_t)id;
        f->site = (void *)(uintptr_t)(id ^ KEY);
        weft__deque_push(s, f);
        pushed++;
        if (round % 2 == 0 || i % 3 < 2) continue;
        for (int k = 0; k < 3; k++) jitter(&owner_random); /* thieves are at the last ones, too */
        while ((f = weft__deque_take(s))) look_at_record(f);
    }
    weft__store(&pushed_round, round, relaxed); /* a hint for the thieves */
}

/* A look as a thief takes it before it steals (find.c). */
static void peek(weft__slot *v) {
    uint32_t top = weft__load(&v->top, acquire), bottom = weft__load(&v->bottom, acquire); /* as in find.c */
    weft__fresh *f = (int32_t)(bottom - top) > 0 ? weft__load(&v->deque[top % WEFT_DEQUE], relaxed) : NULL;
    uint64_t id = f ? weft__load(&f->id, relaxed) : 0;
    atomic_thread_fence(memory_order_acquire); /* the record's id before the newest */
    CHECK_LE(id, weft__load(&newest, relaxed));
}

static void deque_steal(long round) {
    weft__slot *v = &weft__rt.slot[0];
    bool last = false;
    for (int i = 0;; i++) {
        peek(v);
        weft__fresh *f = weft__deque_steal(v);
        if (!f && last) return;
        if (!f) pause_or_yield(i);
        last = weft__load(&pushed_round, relaxed) == round;
        if (!f) continue;
        atomic_fetch_add_explicit(&stolen, 1, memory_order_relaxed);
        look_at_record(f);
    }
}

TEST(litmus, recycled_records_are_those_of_their_id) {
    make_slots(1);
    weft__rt.many = true;
    play(&(game){NULL, queues_check, {deque_push, deque_steal, deque_steal}, 3, test_scale(5000, 300)});
    printf("%ld records, %ld of them stolen\n", pushed, atomic_load(&stolen));
    CHECK_GT(atomic_load(&stolen), 0);
    free_slots();
}

/* ---- claiming a block, and its payload ----
 *
 * A waiter on many, a partner that serves it, and somebody who interrupts it. Forbidden: two winners, none, or a result that does not
 * belong to the payload. */

static struct {
    weft__lock lock; /* of the object */
    weft__queue queue;
    WEFT_ALIGNED weft__thread waiter;
    WEFT_ALIGNED weft__waiter place;
    long elem;
    bool served, interrupted;
    atomic_long served_all, interrupted_all;
} claim;

/* As select does, on one object. */
static void claim_wait(long round) {
    weft__block *b = &claim.waiter.b;
    claim.elem = -round;
    weft__thread_ready(&claim.waiter);
    weft__many_begin(b);
    weft__lock_take(&claim.lock);
    claim.place = (weft__waiter){.block = b, .elem = &claim.elem, .many = true};
    weft__queue_add(&claim.queue, &claim.place);
    weft__many_parked(b);
    weft__lock_leave(&claim.lock);
    weft__thread_sleep(&claim.waiter, 0);
    weft__lock_take(&claim.lock);
    if (claim.place.queue) weft__queue_remove(&claim.place);
    weft__lock_leave(&claim.lock);
    weft__many_end(b);
    CHECK_EQ(claim.elem, b->result == 7 ? round : -round);
}

/* Tries until the wait is over: one of the two must win it. */
static void claim_serve(long round) {
    claim.served = false;
    for (int i = 0; i < 200 && !claim.served; i++) {
        weft__lock_take(&claim.lock);
        weft__waiter *x = weft__queue_claim(&claim.queue);
        if (x) {
            *(long *)x->elem = round;
            x->block->result = 7;
        }
        weft__lock_leave(&claim.lock);
        if (x) weft__resume(x->block, NULL);
        claim.served = x != NULL;
    }
}

static void claim_interrupt(long round) {
    (void)round;
    claim.interrupted = false;
    for (int i = 0; i < 200 && !claim.interrupted; i++)
        claim.interrupted = weft__interrupt(&claim.waiter.b, WEFT_ETIMEDOUT, NULL);
}

/* The waiter may come after both have given up: party 0 is the partner, and goes on until it is over. */
static void claim_serve_or_see(long round) {
    claim_serve(round);
    while (!claim.served && !weft__load(&claim.waiter.woken, acquire)) { /* pairs with weft__resume */
        sched_yield();
        claim_serve(round);
    }
}

static void claim_check(long round) {
    CHECK_MSG(claim.served != claim.interrupted, "round %ld: %s", round, claim.served ? "two winners" : "no winner");
    CHECK_EQ(claim.waiter.b.result, claim.served ? 7 : WEFT_ETIMEDOUT);
    atomic_fetch_add(claim.served ? &claim.served_all : &claim.interrupted_all, 1);
    claim.waiter.b.result = 0;
    weft__thread_ready(&claim.waiter);
}

TEST(litmus, a_block_has_one_winner_and_its_payload) {
    claim.waiter.b.kind = WEFT_BLOCK_THREAD;
    play(&(game){NULL, claim_check, {claim_serve_or_see, claim_wait, claim_interrupt}, 3, test_scale(20000, 500)});
    printf("served %ld times, interrupted %ld times\n", atomic_load(&claim.served_all), atomic_load(&claim.interrupted_all));
}

/* ---- Dekker of cancellation (P3) ----
 *
 * Forbidden: the waiter sees no cancellation and waits, and the cancellation does not find it waiting. It shows as a hang. */

static struct {
    weft_chan *chan;
    weft_scope scope;
} cancel;

static void cancel_wait(long round) {
    long v;
    weft_scope_begin(&cancel.scope, NULL);
    meet();
    CHECK_EQ(round % 2 ? weft_chan_recv(cancel.chan, &v, WEFT_FOREVER) : weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    meet();
    CHECK_EQ(weft_scope_end(&cancel.scope), 0);
}

static void cancel_now(long round) {
    static uint64_t random;
    (void)round;
    meet();
    for (uint64_t i = test_below(&random, 400); i > 0; i--) __asm__ volatile("");
    weft_scope_cancel(&cancel.scope);
    meet();
}

TEST(litmus, no_cancellation_is_missed) {
    cancel.chan = weft_chan_new(sizeof(long), 0);
    play(&(game){NULL, NULL, {cancel_wait, cancel_now}, 2, test_scale(20000, 500)});
    weft_chan_unref(cancel.chan);
}

/* ---- P2: whoever holds a lock learns by one look whether a block waits there ---- */

static struct {
    weft_chan *one, *other;
    _Atomic(weft__block *) block;
    atomic_bool over;
} come_back;

/* Waits here, there, and here again: what was seen of the first wait is no word on the next. */
static void *wait_here_and_there(void *arg) {
    int v;
    (void)arg;
    atomic_store(&come_back.block, weft__thread_block());
    while (weft_chan_recv(come_back.one, &v, WEFT_FOREVER) == 0) CHECK_EQ(weft_chan_recv(come_back.other, &v, WEFT_FOREVER), 0);
    return NULL;
}

static void *serve_here_and_there(void *arg) {
    int v = 0;
    (void)arg;
    for (long i = test_scale(150000, 300); i > 0; i--) {
        CHECK_EQ(weft_chan_send(come_back.one, &v, WEFT_FOREVER), 0);
        CHECK_EQ(weft_chan_send(come_back.other, &v, WEFT_FOREVER), 0);
    }
    atomic_store(&come_back.over, true);
    return NULL;
}

static bool block_known(void *arg) {
    (void)arg;
    return atomic_load(&come_back.block);
}

TEST_T(litmus, whoever_is_held_waits, 120) {
    pthread_t waits, serves;
    come_back.one = weft_chan_new(sizeof(int), 1);
    come_back.other = weft_chan_new(sizeof(int), 1);
    CHECK_EQ(pthread_create(&waits, NULL, wait_here_and_there, NULL), 0);
    test_until(block_known, NULL);
    CHECK_EQ(pthread_create(&serves, NULL, serve_here_and_there, NULL), 0);
    weft__block *b = atomic_load(&come_back.block);
    while (!atomic_load(&come_back.over)) {
        weft__lock *held = weft__hold(b);
        if (!held) continue;
        CHECK(weft__load(&b->queued, acquire) == held); /* pairs with the release in weft__wait_single */
        weft__unhold(b, held);
    }
    pthread_join(serves, NULL);
    CHECK_EQ(weft_chan_close(come_back.one), 0); /* nobody looks at the block any more: it goes with its thread */
    pthread_join(waits, NULL);
    weft_chan_unref(come_back.one);
    weft_chan_unref(come_back.other);
}
