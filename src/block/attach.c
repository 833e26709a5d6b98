/* SPDX-License-Identifier: MIT */
/* Threads of the program's that serve as workers. What they do is in worker.c; a weft_worker is a weft__worker. */
#include "task/task.h"

#include <weft/thread.h>

int weft_thread_attach(weft_worker **out) {
    __atomic_store_n(out, NULL, __ATOMIC_RELAXED); /* as below */
    if (weft__self() != &weft__nobody) return weft__self() == &weft__orphan ? WEFT_ETERMINATED : WEFT_EINVAL;
    (void)weft__runtime_phase(); /* in the child of a fork, forgets who was inside */
    weft__foreign_enter();       /* until it is on the list: the runtime does not end then without waiting for it */
    weft__worker *w = NULL;
    int err = weft__runtime_phase() == WEFT_PHASE_RUNNING ? weft__worker_attach(&w) : WEFT_ETERMINATED;
    weft__foreign_leave();
    if (err) return err;
    __atomic_store_n(out, (weft_worker *)w, __ATOMIC_RELEASE); /* another thread may wait for it */
    return weft__worker_serve(w) ? 0 : WEFT_ETERMINATED;
}

/* A runtime that is about to end lets its workers go by itself. */
void weft_worker_release(weft_worker *w) {
    (void)weft__runtime_phase(); /* as above */
    weft__foreign_enter();
    int phase = weft__runtime_phase();
    if (phase == WEFT_PHASE_RUNNING || phase == WEFT_PHASE_STOPPING) weft__worker_leave((weft__worker *)w);
    weft__foreign_leave();
}
