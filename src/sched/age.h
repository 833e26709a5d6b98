/* SPDX-License-Identifier: MIT */
/* Overload: what has waited for long comes first.
 *
 * A slot takes started tasks and fresh ones by turns, and of the fresh ones the newest. That is
 * right while the slot keeps up. When more comes than it can do, two things go wrong. Fresh tasks
 * at the old end of the deque, or in the global queue, are not started for seconds. And new tasks
 * are started though those that have been started already wait. A scope with a deadline then ends
 * late: its children have not run, or have yet to see that it was cancelled. So there are two
 * rules more.
 *
 * Started tasks are first in, first out, in the ring and in the global queue together. At each
 * look at the global queue, what has come to the ring since the last look goes behind those that
 * wait there (weft__ring_shed), and the ring is filled up from the front of the queue. (Before, a
 * full ring sent its older half to the end of the global queue; some tasks went round between the
 * two for seconds.)
 *
 * Fresh tasks are started by age while something is old: a fresh task, or the first started one in
 * the global queue. Then the slot is late, and its picks are (the first that applies):
 *
 *   every fourth   the newest fresh task if it has no siblings, so that it starts within twice its
 *                  usual time; every sixteenth, any newest task
 *   every second   the oldest fresh task if it is old; but while a started task is old, and if the
 *                  last one so started was not of a cancelled scope, only after 16 picks
 *   the others     `next`, or the ring; if both are empty, the oldest fresh task
 *
 * An opener that waits for several children does not run them inside: they would be the newest.
 *
 * Age. A spawn reads no clock. Each slot numbers the tasks that it spawns. Every WEFT_AGE_EVERY
 * the monitor notes the last number of each slot: a mark. A task whose number is not above the
 * mark before the last one has waited for WEFT_AGE_EVERY at least: it is old. (A task that waited
 * for a place in its scope counts from its spawn.) In the same way the monitor notes how many
 * tasks have come to the global queue of started ones. Where no thread watches, a slot's owner
 * makes the marks, at its look every WEFT_GLOBAL_EVERY rounds.
 *
 *   0 -> granted      the monitor, at a mark, if something is old; it sends the owner there
 *   granted -> less   the owner, for each fresh task that it starts by age
 *   -> 0              the owner: nothing is old any more, or the grant is used up and no started
 *                     task is old
 *
 * Invariants
 *  A1  Of two picks in a row at most one is by age, while others wait.
 *  A2  A child of a cancelled scope uses up none of the grant: it ends soon, and its opener waits.
 *  A3  `late` and the marks are hints. The queues' own protocols decide which task is taken: one
 *      that is not old may be started by age, none is started twice.
 *
 * Why there is a grant. In a deep recursion the oldest waits for long by right, and each start by
 * age is a step towards breadth first, with a stack for each task. The children of a task that was
 * started so are the newest, and are worked off first until the next start. So what is left open
 * is bounded by the rate of starts, whatever the tree looks like. Without a grant the number of
 * stacks would grow by the tree's degree with every mark. The grant is larger where many wait in
 * the global queue, which is seldom so in a recursion.
 *
 * Rejected: a time in each record (a clock in each spawn); a start by count, every n picks (what
 * is right for tasks of 1 us is wrong for tasks of 1 ms); moving old tasks to the global queue
 * (their openers could not run them inside any more). docs/adr/025-by-age.md has the figures. */
#ifndef WEFT_SRC_AGE_H
#define WEFT_SRC_AGE_H

#include "sched/sched.h"

#define WEFT_AGE_EVERY (12 * WEFT_MS)
enum {
    WEFT_AGE_GRANT = 64,  /* starts by age for each slot until the next mark, at least; */
    WEFT_AGE_SHARE = 8,   /* its share of the global queue, divided by that, */
    WEFT_AGE_MOST = 128,  /* and at most */
    WEFT_AGE_ALONE = 4,   /* picks of a late slot of which one is for the newest, if alone; */
    WEFT_AGE_NEWEST = 16, /* and of which one is, whatever it is */
    WEFT_AGE_PAUSE = 16,  /* picks after a start by age of a task that is to do its work */
};

/* A runtime begins: nothing is old. */
void weft__age_open(void);
/* Makes a mark if one is due, by the clock that tests may move, and grants slots that have an old
 * task. From any thread. */
void weft__age_mark(int64_t clock);
/* Chooses for a late slot. Returns 0: choose as always. Caller owns the slot. */
weft__work weft__age_pick(weft__slot *s);

#endif
