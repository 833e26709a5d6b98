/* SPDX-License-Identifier: MIT
 *
 * A lock that leans to a slot (src/base/lock.h, K1 to K4): asymmetric Dekker between the slot's owner and whoever straightens it.
 *
 * mem[]     held, kept, leans, what the two slots' owners are about to take, and the data behind the lock IN MEMORY; a thread's own stores wait in its
 *           store buffers
 * ghost     what the data must be (sequentially consistent)
 *
 * Weak memory: every store goes into a buffer of the thread, and from there to memory at any later time: in the order of the stores (TSO, x86), or with
 * -DWEAK in any order except same-address order and release stores (AArch64). Under TSO an exchange first empties the buffers of its thread.
 * membarrier(): for every thread, at some moment between call and return, its buffers are empty (each CPU at its own time).
 *
 * Threads 0 and 1 have a slot each; the others have none. Who has a slot makes the lock lean there when it has it by exchange, or not.
 *
 * Checked: one has the lock at a time, and sees what the last one did; no dead end.
 *
 * Mutants, each must fail:
 *   M_NOMB      no membarrier                         M_NORECHECK  the owner does not look again
 *   M_LATE      it says that it tries after its look  M_NOWAIT     who straightens does not wait for the owner
 *   M_ONEPLACE  attempts are said in the lock, by TRIES and HOLDS in `kept`, whatever slot it leans to then
 *   M_RELAXED   (with WEAK) leaving is not a release  M_OPEN       it is straightened before it is held
 *   M_ANEW      who has it by leaning, and finds that it does not lean any more, makes it lean
 *   M_DROPFIRST (with WEAK) the attempt is over before it is said that the lock is kept
 */
#ifndef NO
#define NO 1        /* threads without a slot */
#endif
#ifndef OPS
#define OPS 1       /* operations of each owner of a slot */
#endif
#define N (2 + NO)
#define HELD 0
#define KEPT 1
#define LEANS 2
#define DATA 3
#define TRIES 4     /* and 5: of the slots 1 and 2 */
#define VARS 6
#ifdef M_ONEPLACE
#define HOLDS 2
#else
#define HOLDS 1
#endif
#define PENDS(t) (nb[(t) * VARS + HELD] + nb[(t) * VARS + KEPT] + nb[(t) * VARS + LEANS] + nb[(t) * VARS + DATA] + nb[(t) * VARS + TRIES] + nb[(t) * VARS + TRIES + 1])

byte mem[VARS];
byte ghost, inside;
byte nb[N * VARS];                           /* stores under way, for each thread and variable */
byte young[N * VARS];                        /* value of the youngest of them (store forwarding) */
#ifdef WEAK
chan sb[N * VARS] = [4] of { byte, bit };    /* value, release */
byte rels[N];
#else
chan sb[N] = [8] of { byte, byte };          /* variable, value */
#endif
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
inline straighten() {                        /* x: where it leans */
  q = x;
  store(LEANS, 0, 0);
  x = q;
  membarrier();
#ifndef M_NOWAIT
  mem[TRIES + x - 1] == 0;
  mem[KEPT] == 0
#endif
}
inline take() {
#ifdef M_OPEN
  load(LEANS, x);
  if :: x -> straighten() :: else fi;
#endif
  do
  :: exchange(x); if :: x == 0 -> break :: else -> mem[HELD] == 0 fi
  od;
#ifndef M_OPEN
  load(LEANS, x);
  if :: x -> straighten() :: else fi
#endif
}
inline attempt() {                           /* x: it leans here */
#ifdef M_LATE
  load(LEANS, x);
#endif
#ifdef M_ONEPLACE
  store(KEPT, 1, 0);
#else
  store(TRIES + me, 1, 0);
#endif
#if !defined(M_NORECHECK) && !defined(M_LATE)
  load(LEANS, x);
#endif
#ifdef M_DROPFIRST
  store(TRIES + me, 0, 0);
  if :: x == me + 1 -> store(KEPT, HOLDS, 0); leaning = 1 :: else fi
#else
  if :: x == me + 1 -> store(KEPT, HOLDS, 0); leaning = 1 :: else fi;
#ifdef M_ONEPLACE
  if :: !leaning -> store(KEPT, 0, 1) :: else fi
#else
  store(TRIES + me, 0, 1)
#endif
#endif
}

#ifdef WEAK
#define OTHERS(v) (PENDS(me) == nb[me * VARS + (v)])
inline flush(v) {                            /* a release waits for what was stored before it, and for more */
  atomic { sb[me * VARS + (v)]?[x, r] && (OTHERS(v) || sb[me * VARS + (v)]?[x, 0]) ->
           sb[me * VARS + (v)]?x, r; mem[v] = x; nb[me * VARS + (v)]--; rels[me] = rels[me] - r }
}
#endif
proctype store_buffer(byte me) {
  byte x, v; bit r;
end:
  do
#ifdef WEAK
  :: flush(HELD) :: flush(KEPT) :: flush(LEANS) :: flush(DATA) :: flush(TRIES) :: flush(TRIES + 1)
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
     n++;
     leaning = 0;
     load(LEANS, x);
     if :: x == me + 1 -> attempt() :: else fi;
     if :: !leaning -> take() :: else fi;
     use();
#ifdef M_ANEW
     load(LEANS, x);
     if :: x == 0 -> if :: store(LEANS, me + 1, 0) :: true fi :: else fi;
#else
     if :: !leaning -> if :: store(LEANS, me + 1, 0) :: true fi :: else fi;
#endif
     leave()
  od;
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
