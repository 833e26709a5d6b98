/* SPDX-License-Identifier: MIT */
/* What every task with a stack is doing, read from outside while it goes on doing it: each word of a line is true of some moment. Where a
 * stack changes hands just then, a line may have words of both tasks. */
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
static void parent(FILE *out, weft__task *t, bool inner) {
    weft__stack *st = weft__stack_of(weft__peek(&t->b.home));
    weft__task *opener = st ? weft__stack_head(st) : NULL;
    if (inner) fprintf(out, " inside task %llu", (unsigned long long)weft__peek(&t->id));
    if (opener) fprintf(out, " child of task %llu", (unsigned long long)weft__peek(&opener->id));
}

/* Names are in type-stable memory, and this one may be overwritten meanwhile by another. */
static void name(FILE *out, weft__extra *x) {
    char copy[sizeof x->name + 1] = "";
    for (size_t i = 0; x && i < sizeof x->name; i++) copy[i] = weft__peek(&x->name[i]);
    if (copy[0]) fprintf(out, " \"%s\"", copy);
}

static void line(weft__stack *st, void *arg) {
    weft__task *t = weft__stack_head(st);
    FILE *out = arg;
    if (!weft__load(&t->alive, acquire)) return; /* pairs with the release in life.c */
    weft__fresh *inner = weft__peek(&t->inner);  /* in type-stable memory */
    fprintf(out, "task %llu", (unsigned long long)(inner ? weft__load(&inner->id, relaxed) : weft__peek(&t->id)));
    if (!inner) name(out, weft__peek(&t->extra));
    parent(out, t, inner);
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
    weft_fn *fn = inner ? weft__peek(&inner->fn) : weft__peek(&t->fn);
    fprintf(out, "  function %p, spawned at %p\n", (void *)(uintptr_t)fn,
            inner ? weft__peek(&inner->site) : weft__peek(&t->site));
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
