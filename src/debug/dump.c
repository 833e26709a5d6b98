/* SPDX-License-Identifier: MIT */
/* What every task with a stack is doing, read from outside while it goes on doing it: each line is true of some moment. */
#include <stdio.h>

#include "task/task.h"
#include "time/clock.h"

#include <weft/debug.h>

/* Of one that is on a thread: it runs; or is in a call that blocks, with its slot or without; or has lost its slot while it computed. */
static const char *state_on(weft__worker *w, weft__task *t) {
    if (weft__load(&w->stray, relaxed)) return "preempted"; /* hints, as the others here */
    if (weft__load(&t->blocks, relaxed) || weft__thread_blocked(weft__load(&w->tid, relaxed))) return "blocked";
    return weft__here(w) ? "running" : "preempted";
}

static const char *state_of(weft__task *t) {
    int reason = weft__load(&t->b.reason, relaxed); /* written by the task for us */
    if (reason) return weft__wait_name(reason);
    weft__worker *w = weft__worker_running(t);
    return w ? state_on(w, t) : "runnable";
}

/* Whose child it is: the task on whose stack its scope is. The scope itself may go at any time and is not looked at; one that is not on
 * a task's stack has no parent that could be told. */
static void parent(FILE *out, weft__task *t) {
    weft__stack *st = weft__stack_of(t->b.home);
    weft__task *opener = st ? weft__stack_head(st) : NULL;
    if (t->inner) fprintf(out, " inside task %llu", (unsigned long long)t->id);
    if (opener) fprintf(out, " child of task %llu", (unsigned long long)opener->id);
}

static void line(weft__stack *st, void *arg) {
    weft__task *t = weft__stack_head(st);
    FILE *out = arg;
    if (!weft__load(&t->alive, acquire)) return; /* pairs with the release in life.c */
    weft__extra *x = t->extra;                   /* names are in type-stable memory */
    weft__fresh *inner = t->inner;               /* so are records */
    fprintf(out, "task %llu", (unsigned long long)(inner ? weft__load(&inner->id, relaxed) : t->id));
    if (x && !inner && x->name[0]) fprintf(out, " \"%.*s\"", (int)sizeof x->name, x->name);
    parent(out, t);
    fprintf(out, "  %-9s", state_of(t));
    int reason = weft__load(&t->b.reason, relaxed); /* written by the task for us */
    if (reason) {
        int64_t since = weft__clock_now() - weft__since_when(weft__load(&t->b.since, relaxed));
        fprintf(out, " for %lld ms", (long long)(since / WEFT_MS));
        weft__lock *on = weft__load(&t->b.wait_lock, relaxed);
        bool one = reason == WEFT_WAIT_SEND || reason == WEFT_WAIT_RECV ||
                   reason == WEFT_WAIT_JOIN; /* else it is of an earlier wait */
        if (one) fprintf(out, " on %p", (void *)on);
    }
    fprintf(out, "  function %p, spawned at %p\n", (void *)(uintptr_t)(inner ? inner->fn : t->fn),
            inner ? inner->site : t->site);
}

/* They have no stack, and no line. */
static unsigned not_started(void) {
    uint32_t n = weft__load(&weft__rt.fresh.count, relaxed); /* hints */
    for (int i = 0; i < 2; i++) n += weft__load(&weft__rt.lane[i].fresh.count, relaxed);
    for (int i = 0; i < weft__rt.slots; i++) {
        weft__slot *s = &weft__rt.slot[i];
        int32_t own = (int32_t)(weft__load(&s->bottom, relaxed) - weft__load(&s->top, relaxed));
        if (own > 0) n += (uint32_t)own;
    }
    return n;
}

void weft_dump(FILE *out) {
    weft_stats s;
    weft_stats_get(&s);
    weft__foreign_enter();
    bool runs = weft__runtime_phase() >= WEFT_PHASE_RUNNING;
    fprintf(out, "weft %s: %d slots, %d threads, %llu tasks, %u not started, %llu stacks in %llu mappings\n", weft_version(),
            s.slots, s.threads, (unsigned long long)s.tasks, runs ? not_started() : 0, (unsigned long long)s.stacks,
            (unsigned long long)s.stack_mappings);
    if (runs) weft__stack_each(line, out);
    weft__foreign_leave();
}
