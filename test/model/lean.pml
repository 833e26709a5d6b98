/* SPDX-License-Identifier: MIT
 *
 * A lock that leans to a slot (src/base/lock.h, K1 to K3): asymmetric Dekker between the slot's owner and whoever straightens it.
 *
 * mem[]     held, kept, leans and the data behind the lock IN MEMORY; a thread's own stores wait in its store buffers
 * ghost     what the data must be (sequentially consistent)
 *
 * Weak memory: every store goes into a buffer of the thread, and from there to memory at any later time: in the order of the stores (TSO, x86), or with
 * -DWEAK in any order except same-address order and release stores (AArch64). Under TSO an exchange first empties the buffers of its thread.
 * membarrier(): for every thread, at some moment between call and return, its buffers are empty (each CPU at its own time).
 *
 * Threads 0 and 1 have the slot one after the other (the lock passes with the slot: H6); the others have none. The owner makes the lock lean when it
 * has it by exchange, or not.
 *
 * Checked: one has the lock at a time, and sees what the last one did; no dead end.
 *
 * Mutants, each must fail:
 *   M_NOMB      no membarrier                         M_NORECHECK  the owner does not look again
 *   M_LATE      the owner says TRIES after its look   M_NOWAIT     who straightens does not wait for the owner
 *   M_ONEVALUE  TRIES is the same as HOLDS            M_RELAXED    (with WEAK) leaving is not a release
 *   M_OPEN      it is straightened before it is held
 */
#ifndef NO
#define NO 2        /* threads without the slot */
#endif
#ifndef OPS
#define OPS 2       /* operations of each owner of the slot */
#endif
#define N (2 + NO)
#define HELD 0
#define KEPT 1
#define LEANS 2
#define DATA 3
#define VARS 4
#define TRIES 1
#ifdef M_ONEVALUE
#define HOLDS 1
#else
#define HOLDS 2
#endif
#define PENDS(t) (nb[(t) * VARS + HELD] + nb[(t) * VARS + KEPT] + nb[(t) * VARS + LEANS] + nb[(t) * VARS + DATA])

byte mem[VARS];
byte ghost, inside;
byte nb[N * VARS];                           /* stores under way, for each thread and variable */
byte young[N * VARS];                        /* value of the youngest of them (store forwarding) */
#ifdef WEAK
chan sb[N * VARS] = [3] of { byte, bit };    /* value, release */
byte rels[N];
#else
chan sb[N] = [6] of { byte, byte };          /* variable, value */
#endif
byte slot_of;                                /* which of 0 and 1 has the slot */
byte ended;

inline store(v, x, rel) {
  atomic {
#ifdef WEAK
    !(rel) || rels[me] == 0;                 /* one release at a time: each waits for what was stored before it */
    rels[me] = rels[me] + rel;
#endif
    young[me * VARS + v] = x;
    nb[me * VARS + v]++;
#ifdef WEAK
    sb[me * VARS + v]!x, rel
#else
    sb[me]!v, x
#endif
  }
}
inline load(v, r) {
  atomic { if :: nb[me * VARS + v] > 0 -> r = young[me * VARS + v] :: else -> r = mem[v] fi }
}
inline exchange(r) {                         /* held = 1 */
#ifdef WEAK
  atomic { nb[me * VARS + HELD] == 0; r = mem[HELD]; mem[HELD] = 1 }
#else
  atomic { PENDS(me) == 0; r = mem[HELD]; mem[HELD] = 1 }
#endif
}
inline membarrier() {
  PENDS(me) == 0;                            /* the caller's stores first: it is a full barrier for him, too */
#ifndef M_NOMB
  q = 0;
  do :: q < N -> PENDS(q) == 0; q++ :: else -> break od
#endif
}
inline use() {                               /* what the lock protects */
  assert(inside == 0); inside = 1;
  load(DATA, x);
  assert(x == ghost);
  ghost++;
  store(DATA, x + 1, 0);
  inside = 0
}
inline leave() {
  load(KEPT, x);
#ifdef M_RELAXED
  if :: x == HOLDS -> store(KEPT, 0, 0) :: else -> store(HELD, 0, 0) fi
#else
  if :: x == HOLDS -> store(KEPT, 0, 1) :: else -> store(HELD, 0, 1) fi
#endif
}
inline take() {
#ifdef M_OPEN
  load(LEANS, x);
  if :: x -> store(LEANS, 0, 0); membarrier(); load(KEPT, x); do :: x -> load(KEPT, x) :: else -> break od :: else fi;
#endif
  do
  :: exchange(x); if :: x == 0 -> break :: else -> mem[HELD] == 0 fi
  od;
#ifndef M_OPEN
  load(LEANS, x);
  if
  :: x ->
     store(LEANS, 0, 0);
     membarrier();
#ifndef M_NOWAIT
     load(KEPT, x);
     do :: x -> mem[KEPT] == 0; load(KEPT, x) :: else -> break od
#endif
  :: else
  fi
#endif
}

proctype store_buffer(byte me) {
  byte x, v; bit r;
end:
  do
#ifdef WEAK
  :: atomic { sb[me * VARS + HELD]?[x, r] && (nb[me * VARS + KEPT] + nb[me * VARS + LEANS] + nb[me * VARS + DATA] == 0 || sb[me * VARS + HELD]?[x, 0]) ->
              sb[me * VARS + HELD]?x, r; mem[HELD] = x; nb[me * VARS + HELD]--; rels[me] = rels[me] - r }
  :: atomic { sb[me * VARS + KEPT]?[x, r] && (nb[me * VARS + HELD] + nb[me * VARS + LEANS] + nb[me * VARS + DATA] == 0 || sb[me * VARS + KEPT]?[x, 0]) ->
              sb[me * VARS + KEPT]?x, r; mem[KEPT] = x; nb[me * VARS + KEPT]--; rels[me] = rels[me] - r }
  :: atomic { sb[me * VARS + LEANS]?x, r -> mem[LEANS] = x; nb[me * VARS + LEANS]-- }
  :: atomic { sb[me * VARS + DATA]?x, r -> mem[DATA] = x; nb[me * VARS + DATA]-- }
#else
  :: atomic { sb[me]?v, x -> mem[v] = x; nb[me * VARS + v]-- }
#endif
  od
}

proctype owner(byte me) {
  byte x, q, n, leaning;
  do
  :: n == OPS -> break
  :: n < OPS ->
     slot_of == me;
     n++;
     leaning = 0;
     load(LEANS, x);
     if
     :: x ->
#ifdef M_LATE
        load(LEANS, x);
        store(KEPT, TRIES, 0);
#else
        store(KEPT, TRIES, 0);
#ifndef M_NORECHECK
        load(LEANS, x);
#endif
#endif
        if
        :: x -> store(KEPT, HOLDS, 0); leaning = 1
        :: else -> store(KEPT, 0, 1)
        fi
     :: else
     fi;
     if :: !leaning -> take() :: else fi;
     use();
     if :: !leaning -> if :: store(LEANS, 1, 0) :: true fi :: else fi;
     leave()
  od;
  if :: me == 0 -> PENDS(me) == 0; slot_of = 1 :: else fi;   /* H6: a release, and an acquire */
  ended++
}

proctype other(byte me) {
  byte x, q;
  take();
  use();
  leave();
  ended++
}

init {
  byte i;
  atomic {
    if :: mem[LEANS] = 1 :: true fi;
    i = 0;
    do :: i < N -> run store_buffer(i); i++ :: else -> break od;
    run owner(0); run owner(1);
    i = 2;
    do :: i < N -> run other(i); i++ :: else -> break od
  }
  ended == N
}
