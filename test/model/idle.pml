/* SPDX-License-Identifier: MIT
 *
 * The idle protocol: a worker goes to sleep, a producer pushes work; never may the work wait while the worker sleeps.
 *
 *     going idle   gate = none; under the idle lock: slot and worker to the idle lists, idle_count++, drop "searching";
 *                  HEAVY; look again at all queues; work there: under the idle lock take oneself off the list and an
 *                  idle slot, search; already taken off by a waker, or no slot left: sleep until given one
 *     producer     push (plain stores); LIGHT; idle_count > 0, then nsearch == 0: wake_one
 *     wake_one     CAS nsearch 0 -> 1; under the idle lock: a worker and a slot: give, wake (the woken one searches and
 *                  owns the count); none: nsearch--, still under the lock
 *     searcher     found work: nsearch--; HEAVY2; idle_count > 0 and more work: wake_one.  Found none: goes idle.
 *                  (-DIDLEFIRST, as the code does it: idle_count is read once, after nsearch--; 0: no HEAVY2, no look)
 *                  (-DLASTFENCE, as the code does it: who finds all slots idle under the lock needs no HEAVY but a fence)
 *                  (-DFOUNDFENCE, likewise: the searcher that has the only slot needs no HEAVY2 but a fence)
 *     direct       (-DDIRECT) item 0 is not pushed: under the idle lock a slot is given to an idle worker, which runs it and is no searcher
 *                  (a pinned task; or who comes back from a long call takes a slot himself)
 *                  (-DALWAYSWAKE: no HEAVY2 and no look: wakes one whenever idle_count > 0)
 *     stop         under the idle lock: stop = 1, give every idle worker the order to end
 *
 * Two forms.  -DMEMBARRIER: LIGHT is a compiler barrier, HEAVY and HEAVY2 are membarrier().  Default: a full fence in
 * each place.  A push by worker w sits in its store buffer pend[w] until it drains, at any later time; locks and other
 * read-modify-writes of w come after the drain.  membarrier(): at some moment between call and return, each CPU at
 * its own, the buffer is empty.  Foreign threads push to the global queue and always use a fence.
 *
 * A task that pushes work does not end before that work has been run: its worker is busy for as long as it takes, so
 * the work must be picked up by another worker although its producer will never look at its own queue again.  With NS
 * slots at most NS-1 tasks of this kind are around.
 *
 * Checked: all work is run (every process reaches its end); nsearch is 0 or 1 and 0 at the end; a slot has one owner; a
 * wake-up is given only to a worker that has none pending, and is consumed exactly once.
 *
 * Mutants, each must fail:
 *   M_NOBARRIER    (MEMBARRIER) none before the second look    M_NOHEAVY2      (MEMBARRIER, CHAIN) no HEAVY2
 *   M_LOOKBEFORE   second look before publishing               M_NOMORE        (CHAIN) searcher does not wake another
 *   M_DROPLATE     searching dropped after the second look     M_NOTCONSUMED   a given wake-up is thrown away
 *   M_DROPUNLOCKED wake_one found nobody: nsearch-- after the unlock
 *   M_DROPBEHIND   (MEMBARRIER, LASTFENCE, DIRECT) searching dropped after the unlock
 *   M_LASTBUTONE   (MEMBARRIER, LASTFENCE) no HEAVY although one other has a slot
 *   M_IDLEEARLY    (IDLEFIRST, CHAIN, NF=2) idle_count is read before nsearch-- is seen: what AArch64 does without a fence
 */
#ifndef NW
#define NW 2                                 /* workers */
#endif
#ifndef NS
#define NS 2                                 /* slots */
#endif
#ifndef NF
#define NF 2                                 /* foreign threads; thread f pushes item f */
#endif
#define NONE 15
#define STOP 14

/* Items 0..NF-1 come from outside.
 * default:  item 0 pushes 2 and waits until it was run
 * -DTWO:    so does item 1 with 3 (needs 3 slots)
 * -DCHAIN:  item 0 pushes 2 and then 3 and waits for both; item 2 waits for 3 (needs 3 slots) */
#ifdef CHAIN
#define PUSHES(i) ((i) == 0 -> 12 : 0)
#define WAITS(i)  ((i) == 0 -> 12 : ((i) == 2 -> 8 : 0))
#if NF == 2
#define ALL 15
#else
#define ALL 13
#endif
#else
#ifdef TWO
#define PUSHES(i) ((i) == 0 -> 4 : ((i) == 1 -> 8 : 0))
#define ALL 15
#else
#define PUSHES(i) ((i) == 0 -> 4 : 0)
#if NF == 2
#define ALL 7
#else
#define ALL 5
#endif
#endif
#define WAITS(i) PUSHES(i)
#endif

byte q[NS];                                  /* item masks, in memory */
byte gq;
byte pend[NW];                               /* pushed by worker w, not in memory yet */
byte slot[NW] = NONE;
byte owner[NS] = NONE;                       /* ghost */
bit  il;                                     /* idle lock */
byte idle_workers, idle_slots;               /* masks */
byte idle_count;                             /* idle slots */
byte nsearch;
byte given[NW] = NONE;
bit  stop;
byte done;                                   /* items run */
bit direct[NW];                              /* given a slot for item 0 without being the searcher */

#define DRAINED (pend[me] == 0)

/* r = lowest item in m; a task pushes its items in this order */
inline lowest(m, r) {
  if :: m & 1 -> r = 0
     :: !(m & 1) && (m & 2) -> r = 1
     :: !(m & 3) && (m & 4) -> r = 2
     :: !(m & 7) && (m & 8) -> r = 3
  fi }

inline drain(w) {                            /* the oldest push of w reaches memory */
  lowest(pend[w], i);
  pend[w] = pend[w] & ~(1 << i);
  q[slot[w]] = q[slot[w]] | (1 << i);
  i = 0 }

proctype store_buffer() {
  byte i;
end:
  do
  :: atomic { pend[0] -> drain(0) }
  :: atomic { pend[1] -> drain(1) }
#if NW > 2
  :: atomic { pend[2] -> drain(2) }
#endif
  od }

inline membarrier() {
  k = 0;
  do
  :: !(k & 1) && pend[0] == 0 -> k = k | 1
  :: !(k & 2) && pend[1] == 0 -> k = k | 2
#if NW > 2
  :: !(k & 4) && pend[2] == 0 -> k = k | 4
#endif
  :: k == (1 << NW) - 1 -> break
  od;
  k = 0 }

inline lock(drained) { atomic { drained && !il -> il = 1 } }
inline unlock() { il = 0 }

inline give(w, s) {
  assert(given[w] == NONE);
  given[w] = s;
  idle_workers = idle_workers & ~(1 << (w));
  idle_slots = idle_slots & ~(1 << (s));
  idle_count-- }

/* any idle worker with any idle slot */
inline give_any() {
  atomic {
    if :: idle_workers & 1 -> w = 0
       :: idle_workers & 2 -> w = 1
#if NW > 2
       :: idle_workers & 4 -> w = 2
#endif
    fi;
    if :: idle_slots & 1 -> give(w, 0)
       :: idle_slots & 2 -> give(w, 1)
#if NS > 2
       :: idle_slots & 4 -> give(w, 2)
#endif
    fi;
    w = 0 } }

inline drop_search() { atomic { assert(nsearch == 1); nsearch-- } }

inline wake_one(drained) {
  if
  :: atomic { drained && nsearch == 0 -> nsearch = 1 }
     lock(drained);
     if :: idle_workers && idle_slots -> give_any(); unlock()
        :: else ->
#ifdef M_DROPUNLOCKED
           unlock(); drop_search()
#else
           drop_search(); unlock()
#endif
     fi
  :: atomic { drained && nsearch != 0 -> skip }
  fi }

inline wake_check(drained) {
  if :: idle_count > 0 -> if :: nsearch == 0 -> wake_one(drained) :: else fi
     :: else fi }

inline look(r) {                             /* r = 1: there is work in some queue, seen one after the other */
  r = 0;
  if :: gq -> r = 1 :: else fi;
  if :: q[0] -> r = 1 :: else fi;
  if :: q[1] -> r = 1 :: else fi;
#if NS > 2
  if :: q[2] -> r = 1 :: else fi;
#endif
}
inline steal(s) {
  atomic { if :: it == NONE && q[s] -> lowest(q[s], it); q[s] = q[s] & ~(1 << it) :: else fi } }

proctype worker(byte me) {
  byte it, k, w, todo;
  bit srch, seen, last;
sleep:
  atomic { given[me] != NONE ->
    slot[me] = given[me]; given[me] = NONE;
    if :: slot[me] == STOP -> slot[me] = NONE; goto dead
       :: else -> assert(owner[slot[me]] == NONE); owner[slot[me]] = me;
          if :: direct[me] -> direct[me] = 0; it = 0; goto execute :: else -> srch = 1 fi
    fi }
search:
  assert(DRAINED);
  it = NONE;
  atomic { if :: gq -> lowest(gq, it); gq = gq & ~(1 << it) :: else fi }
  if :: skip; steal(0); steal(1) :: skip; steal(1); steal(0) fi;
#if NS > 2
  steal(2);
#endif
  if :: it == NONE -> goto idle :: else fi;
  if :: srch ->
#ifdef M_IDLEEARLY
        k = idle_count;
#endif
        atomic { DRAINED -> drop_search(); srch = 0 }
#if defined(IDLEFIRST)
#ifndef M_IDLEEARLY
        k = idle_count;
#endif
        if :: k > 0 ->
#ifdef MEMBARRIER
#ifdef FOUNDFENCE
              if :: k == NS - 1 -> DRAINED :: else -> membarrier() fi;
#else
              membarrier();
#endif
#endif
              k = 0;
              look(seen)
           :: else fi;
        if :: seen -> wake_check(DRAINED) :: else fi;
        seen = 0
#elif !defined(M_NOMORE)
#if defined(MEMBARRIER) && !defined(ALWAYSWAKE) && !defined(M_NOHEAVY2)
        if :: idle_count > 0 -> membarrier() :: else fi;
#endif
#ifdef ALWAYSWAKE
        seen = 1;
#else
        look(seen);
#endif
        if :: seen -> wake_check(DRAINED) :: else fi;
        seen = 0
#endif
     :: else fi;
execute:
  done = done | (1 << it);
  todo = PUSHES(it);
  do :: todo ->
        atomic { lowest(todo, k); todo = todo & ~(1 << k); pend[me] = pend[me] | (1 << k); k = 0 }
#ifndef MEMBARRIER
        DRAINED;
#endif
        wake_check(DRAINED)
     :: else -> break
  od;
  (done & WAITS(it)) == WAITS(it);
  it = NONE;
  /* own queue first; it is seen without a barrier */
  atomic { if :: q[slot[me]] -> lowest(q[slot[me]], it); q[slot[me]] = q[slot[me]] & ~(1 << it)
              :: else fi }
  if :: it != NONE -> goto execute :: else fi;
  /* nothing left here: search, if nobody does */
  if :: atomic { DRAINED && nsearch == 0 -> nsearch = 1; srch = 1 } goto search
     :: atomic { nsearch != 0 -> skip }
  fi;
idle:
  atomic { it = 0; assert(owner[slot[me]] == me); owner[slot[me]] = NONE }
#ifdef M_LOOKBEFORE
  look(seen);
#endif
  lock(DRAINED);
  if :: stop -> unlock(); if :: srch -> drop_search() :: else fi; goto dead :: else fi;
  atomic { idle_slots = idle_slots | (1 << slot[me]); idle_workers = idle_workers | (1 << me);
           idle_count++; slot[me] = NONE;
#ifdef M_LASTBUTONE
           last = (idle_count >= NS - 1)
#elif defined(LASTFENCE)
           last = (idle_count == NS)
#endif
         }
#ifdef M_DROPBEHIND
  unlock();
#endif
#ifndef M_DROPLATE
  if :: srch -> atomic { drop_search(); srch = 0 } :: else fi;
#endif
#ifndef M_DROPBEHIND
  unlock();
#endif
#ifndef M_NOBARRIER
#ifdef MEMBARRIER
  if :: last -> DRAINED :: else -> membarrier() fi;
  last = 0;
#else
  DRAINED;
#endif
#endif
#ifndef M_LOOKBEFORE
  look(seen);
#endif
#ifdef M_DROPLATE
  if :: srch -> atomic { drop_search(); srch = 0 } :: else fi;
#endif
  if :: !seen -> goto sleep :: else fi;
  seen = 0;
  lock(DRAINED);
  if :: (idle_workers & (1 << me)) && idle_slots ->
        atomic {
          if :: idle_slots & 1 -> slot[me] = 0
             :: idle_slots & 2 -> slot[me] = 1
#if NS > 2
             :: idle_slots & 4 -> slot[me] = 2
#endif
          fi;
          idle_workers = idle_workers & ~(1 << me); idle_slots = idle_slots & ~(1 << slot[me]); idle_count--;
          assert(owner[slot[me]] == NONE); owner[slot[me]] = me }
        unlock();
        if :: atomic { nsearch == 0 -> nsearch = 1; srch = 1 } :: atomic { nsearch != 0 -> skip } fi;
        goto search
     :: else ->
#ifdef M_NOTCONSUMED
        atomic {
          if :: !(idle_workers & (1 << me)) -> given[me] = NONE; idle_workers = idle_workers | (1 << me)
             :: else
          fi }
#endif
        unlock(); goto sleep
  fi;
dead:
  skip }

proctype foreign(byte f) {
  byte w;
#ifdef DIRECT
  if :: f == 0 ->
        lock(true);
        if :: idle_workers && idle_slots ->
              atomic {
                if :: idle_workers & 1 -> w = 0 :: idle_workers & 2 -> w = 1
#if NW > 2
                   :: idle_workers & 4 -> w = 2
#endif
                fi;
                direct[w] = 1;
                if :: idle_slots & 1 -> give(w, 0) :: idle_slots & 2 -> give(w, 1) fi; w = 0 }
              unlock();
              goto fend
           :: else -> unlock() fi
     :: else fi;
#endif
  atomic { gq = gq | (1 << f) }              /* under the global queue's lock, then a full fence */
  wake_check(true);
fend: skip }

init {
  byte i, w;
  atomic {
    idle_workers = (1 << NW) - 1; idle_slots = (1 << NS) - 1; idle_count = NS;
    run store_buffer();
    i = 0; do :: i < NW -> run worker(i); i++ :: else -> break od;
    i = 0; do :: i < NF -> run foreign(i); i++ :: else -> break od; i = 0 }
  done == ALL;
  atomic { !il -> il = 1; stop = 1 }         /* stop */
  do :: i < NW ->
        atomic { if :: idle_workers & (1 << i) -> assert(given[i] == NONE); given[i] = STOP :: else fi; i++ }
     :: else -> break
  od;
  idle_workers = 0;
  il = 0;
  _nr_pr == 2;                               /* all but the store buffer */
  assert(nsearch == 0)
}
