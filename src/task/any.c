/* SPDX-License-Identifier: MIT */
/* Waiting for the first of several tasks: one block on the joiners' queues of all of them (park/many.h). */
#include "park/many.h"
#include "task/task.h"

typedef struct {
    weft__many many;
    weft_task **tasks; /* NULL: left out */
    size_t n;
    weft__waiter *waiters;
} choice;

/* The first of those that have ended. */
static bool look(weft__many *m, weft__slot *s, int *result, weft__block **wake) {
    choice *c = weft__container(m, choice, many);
    (void)s, (void)wake;
    for (size_t i = 0; i < c->n; i++) {
        if (!c->tasks[i] || !c->tasks[i]->ended) continue;
        *result = (int)i;
        return true;
    }
    return false;
}

static void queue(weft__many *m, weft__slot *s) {
    choice *c = weft__container(m, choice, many);
    (void)s;
    for (size_t i = 0; i < c->n; i++) {
        c->waiters[i] = (weft__waiter){.block = m->block, .index = (uint32_t)i, .many = true};
        if (c->tasks[i]) weft__queue_add(&c->tasks[i]->joiners, &c->waiters[i]);
    }
}

static void withdraw(weft__many *m, int32_t result, weft__slot *s) {
    choice *c = weft__container(m, choice, many);
    for (size_t i = 0; i < c->n; i++) {
        if (!c->tasks[i] || (int32_t)i == result) continue;
        weft__lock_take_on(&c->tasks[i]->lock, s);
        if (c->waiters[i].queue) weft__queue_remove(&c->waiters[i]);
        weft__lock_leave(&c->tasks[i]->lock);
    }
}

static const weft__many_kind kind = {WEFT_WAIT_ANY, look, queue, withdraw};

/* The locks in order. An error: nothing to wait for, or for oneself. */
static int prepare(choice *c, weft__block *me) {
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (!c->tasks[i]) continue;
        if (me->home == &c->tasks[i]->scope) return WEFT_EDEADLOCK;
        c->many.order[n++] = &c->tasks[i]->lock;
    }
    weft__many_sort(&c->many, n);
    return n ? 0 : WEFT_EINVAL;
}

/* The index of one that has ended, or an error. */
static int choose(choice *c, weft_deadline deadline) {
    weft__slot *s = weft__enter();
    weft__many *m = &c->many;
    weft__block *b = m->block = weft__me(), *wake = NULL;
    int result = weft__cancel_first(b, deadline);
    if (!result) result = prepare(c, b);
    if (!result) {
        weft__many_lock(m, s);
        bool done = look(m, s, &result, &wake);
        weft__many_unlock(m->order, m->locks);
        if (!done) (void)weft__many_wait(m, kind, deadline, &result, &s);
    }
    if (s) weft__leave();
    return result;
}

static WEFT_COLD int choose_many(choice *c, weft_deadline deadline) {
    char *memory = weft__calloc(c->n, sizeof *c->waiters + sizeof *c->many.order);
    if (!memory) return WEFT_ENOMEM;
    c->waiters = (weft__waiter *)(void *)memory;
    c->many.order = (weft__lock **)(void *)(c->waiters + c->n);
    int r = choose(c, deadline);
    weft__free(memory);
    return r;
}

static int choose_few(choice *c, weft_deadline deadline) {
    weft__waiter waiters[WEFT_MANY_ON_STACK];
    weft__lock *order[WEFT_MANY_ON_STACK];
    c->waiters = waiters;
    c->many.order = order;
    return choose(c, deadline);
}

int weft_task_any(weft_task **tasks, size_t n, size_t *which, int *result, weft_deadline deadline) {
    if (n > INT32_MAX) return WEFT_EINVAL;
    choice c = {.tasks = tasks, .n = n};
    int at = n > WEFT_MANY_ON_STACK ? choose_many(&c, deadline) : choose_few(&c, deadline);
    if (at < 0) return at;
    int r = weft__handle_take(tasks[at]);
    if (which) *which = (size_t)at;
    if (result) *result = r;
    return 0;
}
