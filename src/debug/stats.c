/* SPDX-License-Identifier: MIT */
#include "block/block.h"
#include "io/depart.h"
#include "io/desc.h"
#include "net/net.h"
#include "task/task.h"

#include <weft/debug.h>

/* Between weft__foreign_enter and leave: the slots are there. */
static void collect(weft_stats *out) {
    weft__stack_info stacks;
    weft__stack_info_get(&stacks);
    out->slots = weft__rt.slots;
    out->threads = weft__workers_count();
    out->tasks = weft__load(&weft__rt.foreign_spawned, relaxed) - weft__load(&weft__rt.foreign_done, relaxed);
    for (int i = 0; i < weft__rt.slots; i++) {
        weft__slot *s = &weft__rt.slot[i]; /* counters: each is right, together they are about right */
        out->stacks_used += weft__load(&s->taken, relaxed) - weft__load(&s->given, relaxed);
        out->tasks += weft__load(&s->spawned, relaxed) - weft__load(&s->done, relaxed);
        out->steals += weft__load(&s->steals, relaxed);
        out->wakes += weft__load(&s->wakes, relaxed);
        out->sleeps += weft__load(&s->sleeps, relaxed);
        out->overflows += weft__load(&s->overflows, relaxed);
    }
    out->wakes += weft__load(&weft__rt.foreign_wakes, relaxed);
    out->takeovers = weft__load(&weft__rt.takeovers, relaxed);
    out->handoffs = weft__load(&weft__rt.handoffs, relaxed);
    out->binds = weft__load(&weft__rt.binds, relaxed);
    out->binds_ahead = weft__load(&weft__rt.binds_ahead, relaxed);
    out->bound = weft__bind_count();
    weft__pool_counts(&out->block_threads, &out->block_queued);
    out->strays = weft__load(&weft__rt.strays, relaxed);
    out->stacks = stacks.stacks;
    out->stack_mappings = stacks.mappings;
    out->stack_guards = (uint64_t)stacks.guards;
    out->stack_trims = stacks.trims;
    weft__poll_stats polls = weft__poll_stats_get();
    out->polls = polls.polls;
    out->poll_events = polls.edges;
    out->poll_stale = weft__descs_stale();
    out->poll_landings = weft__descs_landings();
    out->poll_departures = weft__departs_count();
    out->accept_waits = weft__load(&weft__accept_waits, relaxed);
}

void weft_stats_get(weft_stats *out) {
    *out = (weft_stats){0};
    (void)weft__runtime_phase(); /* in the child of a fork, forgets who was inside */
    weft__foreign_enter();
    if (weft__runtime_phase() >= WEFT_PHASE_RUNNING) collect(out);
    weft__foreign_leave();
}
