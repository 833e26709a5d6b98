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
 * Checked: the owner goes on only when all its tasks have ended, is made ready exactly once and only after it left its
 * stack; nobody touches the scope after it is gone; no deadlock.  The memory order is that of the read-modify-writes
 * (acquire-release); `spawned` is touched by the owner and, after the switch, by its CPU only: no store buffers.
 *
 * Mutants, each must fail: M_OWNERLATE every child reads owner after its add; M_NOBIAS done starts at 0; M_SETTLEEARLY
 * before leaving the stack; M_SPAWNLATE a task of the scope publishes its child before it counts it.
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

proctype owner() {
  byte i;
  short n, old;
  do :: i < NCH -> spawned++; atomic { started++; run child() } i++ :: i >= 0 -> break od;
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
  _nr_pr == 1;
  assert(gone && !ready && ended == started)
}
