/* SPDX-License-Identifier: MIT
 *
 * Slot take-over: asymmetric Dekker between a worker's runtime entry and the monitor.
 *
 * gate[w]   0 = no slot; 2+2s = slot s, open; 3+2s = slot s, requested (closed)
 * rt[w]     in_rt of worker w IN MEMORY; the worker's own stores go through sb[w]
 * data[s]   the slot-local state IN MEMORY (a counter); ghost[s] is what it must be (sequentially consistent)
 *
 * Weak memory: every plain store of a worker goes into its store buffer sb[w]; process store_buffer(w) lets entries
 * reach memory at any later time: in FIFO order (TSO, x86), or with -DWEAK in any order except same-address order and
 * release stores (AArch64).  Worker CAS/lock operations first drain sb[w].  membarrier(): for every worker, at some
 * moment between call and return, its buffer is empty (each CPU at its own time).
 *
 * Tasks: NT tasks; one is in exactly one place: running on a worker, in slot queue lq[s], in the global queue gq.
 * A task's life: user code (arbitrarily long: the process may simply not be scheduled) -> runtime call -> ...
 * Runtime calls: count (touch the slot), yield (switch tasks), park/wake is yield through the global queue.
 *
 * Checked: slot state is touched by one thread at a time and each reads what the last one wrote; a task's stack is
 * run by one worker; no task is lost; no deadlock.
 *
 * Mutants, each must fail:
 *   M_NOMB         no membarrier                  M_NORECHECK    gate read before in_rt is set
 *   M_NOINRT       monitor ignores in_rt          M_PLAINCOMMIT  monitor commits with a store instead of a CAS
 *   M_EARLYPUB     task without slot published before its stack is left
 *   M_PLAINREOPEN  worker uses a requested slot without winning the CAS
 *   M_RELAXEDEXIT  (with WEAK) the exit store is not a release
 */
#ifndef NW
#define NW 3
#endif
#ifndef NS
#define NS 1
#endif
#ifndef NT
#define NT 2
#endif
#ifndef MAXC
#define MAXC 2      /* runtime calls per task life before it ends */
#endif
#ifndef NREQ
#define NREQ 3      /* take-over rounds of the monitor */
#endif
#define OPEN(s) (2+2*(s))
#define REQ(s)  (3+2*(s))
#define SLOT(g) (((g)-2)/2)
#define A_RT1 0     /* in_rt = 1, relaxed */
#define A_RT0 1     /* in_rt = 0, release */
#define A_DATA 2    /* data[slot] = val   */
#define NONE 15

byte gate[NW];
bit  rt[NW] = 1;
byte data[NS], ghost[NS];
chan sb[NW] = [4] of { byte, byte, byte };   /* kind, slot, value */
byte npd[NW];                                /* data stores pending in sb[w] */
byte fwd[NW];                                /* value of the youngest of them (store forwarding) */
bit  mbreq[NW];
chan gq = [NT] of { byte };
chan lq[NS] = [NT] of { byte };
byte on[NT] = NONE;                          /* worker that executes the task's stack */
byte cur[NW] = NONE;
byte calls[NT];
byte idle_slots;                             /* bit mask */
bit  isidle[NW];                             /* on the idle-worker list */
byte given[NW] = NONE;                       /* slot handed to a worker */
bit  lock;                                   /* scheduler lock (slow paths) */
byte finished;

inline apply(k, s, v) {                      /* a store reaches memory */
  if :: k == A_RT1 -> rt[me] = 1
     :: k == A_RT0 -> rt[me] = 0
     :: k == A_DATA -> data[s] = v; npd[me]--
  fi }

proctype store_buffer(byte me) {               /* the store buffer of worker me */
  byte k, s, v;
end:
  do
  :: atomic { nempty(sb[me]) -> sb[me]?k,s,v; apply(k,s,v); k=0;s=0;v=0 }
#ifdef WEAK
  /* a younger data store may overtake older in_rt stores */
  :: atomic { sb[me]??[A_DATA,_,_] -> sb[me]??A_DATA,s,v; k = A_DATA; apply(k,s,v); k=0;s=0;v=0 }
  /* in_rt=1 may overtake older data stores, but not an older in_rt=0 (same address) */
  :: atomic { sb[me]??[A_RT1,_,_] && !(sb[me]??[A_RT0,_,_]) -> sb[me]??A_RT1,s,v; k = A_RT1; apply(k,s,v); k=0;s=0;v=0 }
#ifdef M_RELAXEDEXIT
  :: atomic { sb[me]??[A_RT0,_,_] && !(sb[me]??[A_RT1,_,_]) -> sb[me]??A_RT0,s,v; k = A_RT0; apply(k,s,v); k=0;s=0;v=0 }
#endif
#endif
  :: atomic { mbreq[me] && empty(sb[me]) -> mbreq[me] = 0 }
  od }

#define DRAIN empty(sb[me])                  /* before a locked instruction of worker me */

/* touch slot-local state: read-modify-write through the store buffer.  The assertion says: what I read is what the last
 * owner wrote, so nobody else is inside and nobody's buffered write is still on its way. */
inline touch(s) {
  atomic { v = (npd[me] -> fwd[me] : data[s]); assert(v == ghost[s]) }
  atomic { nfull(sb[me]); assert(v == ghost[s]);
           v = (v+1)%4; ghost[s] = v; fwd[me] = v; npd[me]++; sb[me]!A_DATA,s,v; v = 0 }
}
inline exit_rt() { atomic { nfull(sb[me]); sb[me]!A_RT0,0,0 } }
inline lck() { atomic { DRAIN && !lock -> lock = 1 } }
inline unl() { atomic { DRAIN; lock = 0 } }

/* take a slot out of the idle list if there is one: result in ns (lock held) */
inline take_idle() {
  ns = NONE;
  if :: idle_slots & 1 -> ns = 0; idle_slots = idle_slots & 254
#if NS > 1
     :: idle_slots & 2 -> ns = 1; idle_slots = idle_slots & 253
#endif
     :: else fi }

proctype worker(byte me) {
  byte g, v, t, ns, s;
idle:                                        /* in the runtime (rt==1), no slot, on the worker's own stack */
  isidle[me] = 1;
  do
  :: atomic { given[me] != NONE -> s = given[me]; given[me] = NONE; assert(gate[me] == 0); gate[me] = OPEN(s); break }
  :: atomic { DRAIN && !lock && isidle[me] && idle_slots && len(gq) > 0 -> lock = 1; isidle[me] = 0 }
     take_idle();
     atomic { assert(ns != NONE); s = ns; gate[me] = OPEN(s) }
     unl(); break
  :: atomic { finished == NT -> goto dead }
  od;
sched:                                       /* owns slot s, rt==1, on its own stack */
  touch(s);
  t = NONE;
  if :: atomic { nempty(lq[s]) -> lq[s]?t }
     :: lck(); if :: len(gq) > 0 -> gq?t :: else fi; unl();
        if :: t == NONE && len(lq[s]) > 0 -> lq[s]?t :: else fi
  fi;
  if :: t == NONE ->                         /* nothing to do: give the slot up: first the gate, then the list */
        atomic { DRAIN; assert(gate[me] == OPEN(s) || gate[me] == REQ(s)); gate[me] = 0 };
        lck(); idle_slots = idle_slots | (1<<s); s = 0; unl(); goto idle
     :: else fi;
runt:                                        /* switch to task t */
  atomic { assert(on[t] == NONE); on[t] = me; cur[me] = t; t = 0 }
user:
  atomic { s = 0; ns = 0; g = 0 }
  exit_rt();
  /* ---- user code: any C call; may block or compute for any time ---- */
  /* ---- runtime call ---- */
#ifdef M_NORECHECK
  g = gate[me];
  atomic { nfull(sb[me]); sb[me]!A_RT1,0,0 }
#else
  atomic { nfull(sb[me]); sb[me]!A_RT1,0,0 }   /* plain store + compiler barrier */
  g = gate[me];                                /* plain load: may be before the store is visible */
#endif
  do
  :: g == 0 ->                               /* lost: take an idle slot, else queue the task and become idle */
     lck(); take_idle();
     if :: ns != NONE -> atomic { s = ns; gate[me] = OPEN(s) }; unl(); break
        :: else ->
#ifdef M_EARLYPUB
           gq!cur[me]; unl(); atomic { on[cur[me]] = NONE; cur[me] = NONE }
#else
           unl();
           /* switch to the worker's own stack; the task is published by the context that runs next */
           atomic { t = cur[me]; assert(on[t] == me); on[t] = NONE; cur[me] = NONE };
           lck(); gq!t; t = 0; unl();
#endif
           goto idle
     fi
  :: g != 0 && (g & 1) ->                    /* requested: win it back or lose it; one CAS decides */
#ifdef M_PLAINREOPEN
     s = SLOT(g-1); break
#else
     if :: atomic { DRAIN && gate[me] == g -> gate[me] = g - 1; s = SLOT(g-1) }; break
        :: atomic { DRAIN && gate[me] != g -> g = gate[me] }
     fi
#endif
  :: g != 0 && !(g & 1) -> s = SLOT(g); break
  od;
  touch(s);
  t = cur[me];
  assert(on[t] == me);
  if
  :: calls[t] >= MAXC -> atomic { calls[t] = 0; on[t] = NONE; cur[me] = NONE; finished++; t = 0 }; goto sched
  :: calls[t] < MAXC -> calls[t]++;
     if
     :: t = 0; goto user                     /* count op */
     :: atomic { on[t] = NONE; cur[me] = NONE; lq[s]!t; t = 0 }; goto sched      /* yield */
     :: atomic { on[t] = NONE; cur[me] = NONE }; lck(); gq!t; t = 0; unl(); goto sched  /* park + wake by another */
     fi
  fi;
dead: skip
}

proctype monitor() {
  byte i, s, w, n, hw;
  byte cand[NS];
  do
  :: n < NREQ && finished < NT ->
     n++;
     /* 1. request: close the gates (CAS), of any subset of slots */
     s = 0;
     do :: s < NS ->
           cand[s] = NONE;
           w = 0;
           do :: w < NW ->
                 if :: atomic { gate[w] == OPEN(s) -> gate[w] = REQ(s); cand[s] = w }
                    :: atomic { gate[w] == REQ(s) -> cand[s] = w }       /* still requested from an earlier round */
                    :: true
                 fi; w++
              :: else -> break
           od; s++
        :: else -> break
     od;
#ifndef M_NOMB
     /* 2. membarrier */
     atomic { i = 0; do :: i < NW -> mbreq[i] = 1; i++ :: else -> break od; i = 0 };
     do :: i < NW -> !mbreq[i]; i++ :: else -> break od;
     i = 0;
#endif
     /* 3. commit where the worker is outside */
     s = 0;
     do :: s < NS ->
        w = cand[s]; cand[s] = 0;
        if :: w != NONE ->
#ifndef M_NOINRT
           if :: rt[w] -> skip               /* inside: postpone, leave the gate closed */
              :: !rt[w] ->
#endif
#ifdef M_PLAINCOMMIT
                 gate[w] = 0;
#else
                 if :: atomic { gate[w] != REQ(s) -> goto next } :: atomic { gate[w] == REQ(s) -> gate[w] = 0 } fi;
#endif
                 /* the slot is ours: hand it to an idle worker, or put it on the idle list */
                 atomic { !lock -> lock = 1 };
                 hw = 0;
                 do :: atomic { hw < NW && isidle[hw] -> isidle[hw] = 0; given[hw] = s }; break
                    :: hw < NW -> hw++
                    :: hw == NW -> idle_slots = idle_slots | (1<<s); break
                 od; lock = 0; hw = 0
#ifndef M_NOINRT
           fi
#endif
           :: else fi;
next:   s++
        :: else -> break
     od; s = 0; w = 0
  :: n >= NREQ || finished == NT -> break
  od
}

init { byte i;
  atomic {
    i = 0; do :: i < NT -> gq!i; i++ :: else -> break od;
    i = 0; do :: i < NS -> idle_slots = idle_slots | (1<<i); i++ :: else -> break od;
    i = 0; do :: i < NW -> run store_buffer(i); i++ :: else -> break od;
    i = 0; do :: i < NW -> run worker(i); i++ :: else -> break od;
    i = 0;
    run monitor() }
  (_nr_pr == 1 + NW);                        /* all workers and the monitor ended: no task lost */
  assert(finished == NT)
}
