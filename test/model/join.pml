/* SPDX-License-Identifier: MIT
 *
 * The biased scope counter: the owner counts its spawns without atomics, and is still woken exactly once.
 *
 *     owner spawns     spawned++ (plain), publish the child
 *     task of the scope spawns into it   done -= 1 (atomic), THEN publish the child
 *     child ends       o = owner; old = fetch_add(done, 1); old == -1: make o ready.  Nothing after the add
 *     owner joins      done == BIAS + spawned: all ended, go on.  Else leave the stack; the next context settles:
 *                      old = fetch_sub(done, n = BIAS + spawned); old == n: make the owner ready.  Nothing after it
 *
 * Only the task that got -1 may still touch the scope (the owner sleeps until this very task has made it ready), so it
 * may also read `owner` after the add (-DWINNERREADS); all others may not.
 *
 * done starts at BIAS, which is more than all the tasks there can be, so nobody sees -1 before the owner has settled.
 * The scope lives in the owner's frame: when the owner goes on, it is gone.
 *
 * With -DGIVEUP the owner first makes a join that can be given up (weft_scope_wait), then spawns once more, then joins for good:
 *
 *     owner waits      take L; interrupted already: leave L, give up.  done == BIAS + spawned: leave L, go on.  Else queued = 1,
 *                      leave the stack with L held; the next context settles, then leaves L, and only now makes the owner ready if
 *                      old == n
 *     interrupter      says that it comes; take L; queued and done < 0: done += BIAS + spawned, in one step, queued = 0; leave L;
 *                      make the owner ready.  Otherwise leave L: the owner does not wait, or its last child has it
 *     owner resumed    queued is 0: given up.  Else it was the last child: take L, queued = 0, leave L, done += BIAS + spawned
 *
 * The counter decides between the last child and the interrupter. L is in the owner's block, not in the scope, so an interrupter
 * that comes late may take it; queued tells whether the scope is still there. -DSTUCK: children may end only after the owner's wait
 * is over; then the wait has to be given up, and an interrupter that is not noticed is a deadlock.
 *
 * Checked: the owner goes on only when all its tasks have ended, is made ready exactly once and only after it left its
 * stack; nobody touches the scope after it is gone; no deadlock.  The memory order is that of the read-modify-writes
 * (acquire-release); `spawned` is touched by the owner and, after the switch, by its CPU only: no store buffers.
 *
 * Mutants, each must fail: M_OWNERLATE every child reads owner after its add; M_NOBIAS done starts at 0; M_SETTLEEARLY
 * before leaving the stack; M_SPAWNLATE a task of the scope publishes its child before it counts it.
 * With GIVEUP also: M_GIVEBLIND the interrupter does not look whether the last child has it; M_GIVELATE the owner takes the
 * settling back after the interrupter has resumed it; M_GIVENOTHING nobody does; M_STAYSETTLED the owner that its last child woke
 * does not; M_NOLOCK that owner goes on without clearing queued; M_UNLOCKFIRST L is left before settling; M_NOFIRED the owner does not
 * look for an interrupter that came early.
 */
#ifndef NCH
#define NCH 2                                /* spawned by the owner */
#endif
#ifndef NGR
#define NGR 2                                /* at most so many spawned by tasks of the scope */
#endif
#ifdef M_NOBIAS
#define BIAS 0
#else
#define BIAS 20
#endif
#define OWNER 1

short done = BIAS;
short spawned;
byte  owner_ptr = OWNER;
bit   gone;                                  /* the scope's memory is somebody else's */
bit   onstack = 1, ready;
byte  started, ended, grand;                 /* ghosts */
#ifdef GIVEUP
#ifndef NMORE
#define NMORE 1                              /* spawned between the wait and the join */
#endif
bit   L, queued, fired;                      /* of the owner's block */
bit   gave_up, waited;                       /* what the wait returned; it has (ghost) */
inline take() { atomic { !L -> L = 1 } }
inline leave() { L = 0 }
#endif

inline touch() { assert(!gone) }
inline make_ready(o) { atomic { assert(o == OWNER); assert(!onstack); assert(!ready); ready = 1 } }

proctype child() {
  byte o;
  short old;
  do
  :: atomic { grand < NGR -> grand++ }       /* spawns into its own scope */
#ifdef M_SPAWNLATE
     atomic { started++; run child() }
     atomic { touch(); done-- }
#else
     atomic { touch(); done-- }
     atomic { started++; run child() }
#endif
  :: break
  od;
#ifdef STUCK
  if :: true -> waited :: true fi;
#endif
#ifdef M_OWNERLATE
  atomic { touch(); old = done; done++; ended++ }
  atomic { touch(); o = owner_ptr }
  if :: old == -1 -> make_ready(o) :: else fi
#else
#ifdef WINNERREADS
  atomic { touch(); old = done; done++; ended++ }
  if :: old == -1 -> atomic { touch(); o = owner_ptr } make_ready(o) :: else fi
#else
  atomic { touch(); o = owner_ptr }
  atomic { touch(); old = done; done++; ended++ }
  if :: old == -1 -> make_ready(o) :: else fi
#endif
#endif
}

#ifdef GIVEUP
proctype interrupter() {
  short all;
  bit mine;
  fired = 1;                                 /* the epoch, or the alarm's flag; a full barrier behind it */
  take();
  if
  :: queued ->
     atomic { touch(); all = BIAS + spawned }
     atomic {
       touch();
       mine = (done < 0);
#ifdef M_GIVEBLIND
       mine = 1;
#endif
#ifndef M_GIVELATE
#ifndef M_GIVENOTHING
       if :: mine -> done = done + all :: else fi
#endif
#endif
     }
     if :: mine -> queued = 0; gave_up = 1 :: else fi
  :: else
  fi;
  leave();
  if :: mine -> make_ready(OWNER) :: else fi
}
#endif

proctype owner() {
  byte i;
  short n, old;
  do :: i < NCH -> spawned++; atomic { started++; run child() } i++ :: i >= 0 -> break od;
#ifdef GIVEUP
  take();
#ifndef M_NOFIRED
  if :: fired -> leave(); gave_up = 1; goto over :: else fi;
#endif
  if :: done == BIAS + spawned -> leave(); goto over :: else fi;
  queued = 1;
  onstack = 0;                               /* as below */
#ifdef M_UNLOCKFIRST
  leave();
  atomic { touch(); n = BIAS + spawned }
  atomic { touch(); old = done; done = done - n }
#else
  atomic { touch(); n = BIAS + spawned }
  atomic { touch(); old = done; done = done - n }
  leave();
#endif
  if :: old == n -> make_ready(OWNER) :: else fi;
  atomic { ready -> ready = 0; onstack = 1 }
#ifdef M_GIVELATE
  if :: !queued -> atomic { done = done + n } :: else fi;
#endif
  if
  :: queued ->
     assert(ended == started);
#ifndef M_NOLOCK
     take();
     queued = 0;
     leave();
#endif
#ifndef M_STAYSETTLED
     atomic { done = done + n }
#endif
  :: else -> assert(gave_up)
  fi;
over:
  atomic { waited = 1; i = 0 }
  do :: i < NMORE -> spawned++; atomic { started++; run child() } i++ :: i >= 0 -> break od;
#endif
  if :: done == BIAS + spawned -> goto joined :: else fi;
#ifdef M_SETTLEEARLY
  atomic { touch(); n = BIAS + spawned; old = done; done = done - n }
  onstack = 0;
#else
  onstack = 0;                               /* the rest until it is ready is done by the next context of this CPU */
  atomic { touch(); n = BIAS + spawned }
  atomic { touch(); old = done; done = done - n }
#endif
  if :: old == n -> make_ready(OWNER) :: else fi;
  atomic { ready -> ready = 0; onstack = 1 }
joined:
  atomic { assert(ended == started); gone = 1 }
}

init {
  run owner();
#ifdef GIVEUP
  run interrupter();
#endif
  _nr_pr == 1;
  assert(gone && !ready && ended == started)
}
