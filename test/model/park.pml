/* SPDX-License-Identifier: MIT
 *
 * The parking protocol: one waiter, several who may end its wait, exactly one of them does.
 *
 * SINGLE wait (one channel).  The channel's lock arbitrates:
 *     waiter       entry check; wait_lock = c; [arm timer]; lock c; FENCE; epoch changed and cancelled? -> ECANCELED;
 *                  partner? serve it;  timer already fired? -> ETIMEDOUT;
 *                  else queued = 1, leave the stack WITH THE LOCK HELD; the next context unlocks c
 *     claimer      under c's lock: dequeue, queued = 0, result; unlock; make ready
 *     interrupter  w = wait_lock; if w: lock w; queued on w (one load): dequeue, queued = 0, result; unlock.  A canceller
 *                  also looks, under the lock, whether the waiter is shielded: then nothing
 *     resumed      wait_lock = none; stops the timer
 * MULTI wait (select; sleep is a select over nothing).  One CAS on `state` arbitrates:
 *     waiter       entry check; with -DLOOK each case once, under its own lock; [arm timer]; state = PARKING; lock all; FENCE;
 *                  cancelled? ready? fired? -> state = RUNNING
 *                  else one waiter record per channel, leave the stack with the locks held
 *     next context state = PARKED, then unlock all
 *     claimer      under c's lock: dequeue, CAS(state, PARKED, CLAIMED): won = serve it, lost = drop the record
 *     interrupter  PARKING: wait;  PARKED: CAS to CLAIMED, result, make ready;  else nothing.  A canceller looks after the
 *                  CAS whether the waiter is shielded: then the result is AGAIN, and the waiter begins the wait anew
 *     resumed      withdraws the records that the winner has not taken, each under its channel's lock, state = RUNNING, stops the timer
 *     pair         (-DPAIR) without a deadline: looks at the second channel, or not; lock the first, nothing there; state = PARKING; lock the
 *                  second; FENCE; cancelled? ready? else waits with the two locks it has
 * holder           (-DHOLD) keeps a parked waiter from being resumed, without ending its wait: single: the lock of wait_lock, then
 *                  queued on w, as above; multi: CAS(state, PARKED, HELD), later HELD -> PARKED.  Whoever finds HELD waits
 * timer            under the wheel's lock: fired = 1; FENCE; then interrupts; stopping takes that lock
 * canceller        cancelled = 1; epoch++; FENCE; then interrupts the tasks of the scope; with -DCANCEL_BY_TIMER under the
 *                  wheel's lock (a scope's deadline): so nobody may want that one in PARKING
 * shield           put up and taken down by the task, with plain stores; with -DEXPIRE its time is up at some moment: under
 *                  the wheel's lock: shield = 0; epoch++; FENCE; cancelled? -> interrupts the task
 *
 * Memory.  The waiter's plain stores to wait_lock and state, the canceller's to cancelled and the timer's to fired
 * sit in store buffers sb[] that drain at any later time: in FIFO order (TSO), or with -DWEAK in any order that keeps
 * same-address and release order.  TSO: a lock operation drains the buffer, FENCE is only a compiler barrier.  WEAK: a
 * lock operation is an acquire and drains nothing, FENCE drains.  Loads are in program order.  What is read and
 * written only under one lock is plain.
 *
 * Checked: made ready exactly once per parked wait and only after the stack was left; exactly one winner; a value sent
 * with OK is received exactly once, one sent with an error never; no error without its cause; nobody touches a wait
 * after its operation returned; no deadlock (every process reaches its end).
 *
 * Scenario: one of -DSINGLE -DSELECT -DSELSEL -DCLOSE -DSUCC -DSLEEP -DSHIELD (see init).
 *
 * Mutants, each must fail:
 *   M_NORECHECK     no epoch check after the lock            M_LOOKFIRST    canceller looks, then epoch++
 *   M_FLAGFIRST     entry check: flag first, then epoch      M_PLAINEPOCH   epoch++ is a plain store
 *   M_LOOKQUEUED    queued read outside the lock decides     M_NOLOCKCHECK  no re-check of queued under the lock
 *   M_NOFIRED       waiter ignores a timer already fired     M_NOTIMERFENCE timer: no fence between fired and the look
 *   M_ARMPARKING    select arms its timer while PARKING (with CANCEL_BY_TIMER: deadlock)
 *   M_NOSTOP        timer not stopped before returning       M_STOPFIRST    select stops its timer while PARKING
 *   M_UNLOCKFIRST   waiter unlocks before leaving its stack  M_POLLFIRST    wheel's lock before post-switch
 *   M_NOCAS         claimer of a select without the CAS      M_UNLOCKBEFOREPARKED  post-switch action in wrong order
 *   M_CLAIMPARKING  interrupter does not wait in PARKING     M_POSTREADS    frame read after the last unlock
 *   M_NOWITHDRAW    loser records stay queued                M_LOOKEARLY    shield looked at before the claim
 *   M_WITHDRAWUNLOCKED  they are taken off without the lock  M_PARKINGLATE  (PAIR) PARKING after the last lock
 *   M_HELDLOST      claimer of a select takes HELD for lost  M_HELDGONE     interrupter takes HELD for ended
 *   M_HOLDUNLOCKED  holder of a single wait without the lock
 *   M_PUTBACK       a wait claimed for nothing is PARKED again instead of begun anew
 *   M_NOEXPIRYFENCE the shield's time: no fence before the look
 *   M_NOFENCE_WAITER (WEAK) no fence after the lock          M_PLAINEPOCH   (WEAK) no fence after epoch++
 */
#define RUNNING 0
#define PARKING 1
#define PARKED  2
#define CLAIMED 3
#define HELD    4

#define R_NONE 0
#define R_OK 1
#define R_CANCELED 2
#define R_TIMEDOUT 3
#define R_CLOSED 4
#define R_AGAIN 5

#define RECV 1                               /* direction of a waiter record; the opposite is 3 - d */
#define SEND 2
#define MULTI 4                              /* flag in a waiter record: arbitrated by state, not by the lock alone */
#define DIR(r) ((r) & 3)

#define NC 2                                 /* channels, rendezvous */
#ifndef NT
#define NT 2                                 /* tasks */
#endif
#define NOCHAN 7
#define NOBODY 7

/* channels */
bit  lk[NC];
bit  closed[NC];
byte rec[NC*NT];                             /* waiter record of task t on channel c; served in any order */
#define REC(c,t) rec[(c)*NT+(t)]

/* wait blocks */
byte state[NT];
byte wait_lock[NT] = NOCHAN;
bit  queued[NT];
byte result[NT];
byte elem[NT];                               /* value to send, or value received */
byte which[NT];                              /* channel that served a select */
bit  ready[NT];

/* scope */
bit  cancelled;
byte epoch;
bit  shield[NT];

/* timers: one per task, all in one wheel */
bit  wheel;
bit  armed[NT];
bit  fired[NT];

/* ghosts */
bit  onstack[NT] = 1;
bit  holding[NT];                            /* somebody relies on its not running */
bit  inop[NT];                               /* the operation has not returned: its frame and timer are there */
bit  won[NT];
bit  went_off[NT];
byte over;                                   /* tasks that ended */
byte post_req[NT];                           /* 1 = PARKED and unlock, 2 = PARKED only (sleep) */
#define NV 5
byte sent[NV], got[NV];                      /* per value */

/* store buffers: one per task, one for the canceller, one for the timers' CPU */
#define A_WL 0
#define A_ST 1
#define A_CANCELLED 2
#define A_EPOCH 3
#define A_FIRED 4
#define A_SHIELD 5
#define CPU_CANCELLER NT
#define CPU_TIMER (NT+1)
chan sb[NT+2] = [3] of { byte, byte };
#define DRAINED(p) empty(sb[p])
#ifdef WEAK
#define LOCK_DRAINS(p) true
#define FENCE(p) DRAINED(p)
#else
#define LOCK_DRAINS(p) DRAINED(p)
#define FENCE(p) true
#endif
#ifdef M_NOFENCE_WAITER
#define FENCE_WAITER(p) true
#else
#define FENCE_WAITER(p) FENCE(p)
#endif
#define STORE(p,a,v) atomic { nfull(sb[p]); sb[p]!a,v }

proctype store_buffer(byte p) {
  byte a, v;
end:
  do
  :: atomic { nempty(sb[p]) -> sb[p]?a,v;
       if :: a == A_WL -> wait_lock[p] = v
          :: a == A_ST -> state[p] = v
          :: a == A_CANCELLED -> cancelled = 1
          :: a == A_EPOCH -> epoch++
          :: a == A_FIRED -> fired[v] = 1
          :: a == A_SHIELD -> shield[v] = 0
       fi; a = 0; v = 0 }
#ifdef WEAK
  :: atomic { sb[p]??[A_WL,_] -> sb[p]??A_WL,v; wait_lock[p] = v; v = 0 }   /* ?? takes the oldest of that address */
  :: atomic { sb[p]??[A_ST,_] -> sb[p]??A_ST,v; state[p] = v; v = 0 }
#endif
  od }

inline lock(p, c) { atomic { LOCK_DRAINS(p) && !lk[c] -> lk[c] = 1 } }
inline unlock(c)  { atomic { assert(lk[c]); lk[c] = 0 } }

/* Somebody won the right to end t's wait. */
inline win(t, r) { assert(!won[t] && inop[t]); won[t] = 1; result[t] = r }
inline make_ready(t) { atomic { assert(!onstack[t]); assert(!ready[t]); assert(won[t]); ready[t] = 1 } }

/* Under c's lock: take the waiter p with result r.  A select that somebody else has won: only drop the record. */
inline take(c, r) {
  if :: !(REC(c,p) & MULTI) -> REC(c,p) = 0; queued[p] = 0; win(p, r)
     :: else ->
        REC(c,p) = 0;
#ifdef M_NOCAS
        state[p] = CLAIMED; win(p, r); which[p] = c
#else
        if :: state[p] == PARKED -> state[p] = CLAIMED; win(p, r); which[p] = c
           :: else -> p = NOBODY
        fi
#endif
  fi }

#ifdef M_HELDLOST
#define MAY_TAKE(t) true
#else
#define MAY_TAKE(t) (state[t] != HELD)       /* otherwise waits until it is */
#endif
#if NT > 2
#define NO_WAITER(c,x) (DIR(REC(c,0)) != x && DIR(REC(c,1)) != x && DIR(REC(c,2)) != x)
#else
#define NO_WAITER(c,x) (DIR(REC(c,0)) != x && DIR(REC(c,1)) != x)
#endif
/* Under c's lock: take any waiter of direction x; p = the task, or NOBODY. */
inline claim(c, x, r) {
  do
  :: atomic { DIR(REC(c,0)) == x && MAY_TAKE(0) -> p = 0; take(c, r) } if :: p != NOBODY -> break :: else fi
  :: atomic { DIR(REC(c,1)) == x && MAY_TAKE(1) -> p = 1; take(c, r) } if :: p != NOBODY -> break :: else fi
#if NT > 2
  :: atomic { DIR(REC(c,2)) == x && MAY_TAKE(2) -> p = 2; take(c, r) } if :: p != NOBODY -> break :: else fi
#endif
  :: atomic { NO_WAITER(c,x) -> p = NOBODY } break
  od }

/* The element moves under the lock, between me and the claimed partner p. */
inline transfer(x) {
  atomic { if :: x == SEND -> elem[p] = elem[me] :: else -> elem[me] = elem[p] fi } }

inline arm() {                               /* the wheel's lock; its release publishes what was stored before */
  if :: dl -> atomic { DRAINED(me) && !wheel -> fired[me] = 0; armed[me] = 1 } :: else fi }
inline disarm() {
#ifdef M_NOSTOP
  skip
#else
  if :: dl -> atomic { LOCK_DRAINS(me) && !wheel -> armed[me] = 0 } :: else fi
#endif
}
inline poll_timers() {                       /* mutant: looks at the wheel before the post-switch action */
#ifdef M_POLLFIRST
  atomic { !wheel -> wheel = 1 } wheel = 0
#else
  skip
#endif
}
inline was_cancelled() {                     /* after the fence: was I cancelled since the entry check? */
#ifdef M_NORECHECK
  skip
#else
  atomic { if :: epoch != e && cancelled && !shield[me] -> res = R_CANCELED :: else fi }
#endif
}
/* Both locks held: one case of a select. */
inline try_case(c, x) {
  if :: res == R_NONE ->
        if :: closed[c] -> res = R_CLOSED; which[me] = c
           :: else -> claim(c, 3-(x), R_OK); if :: p != NOBODY -> transfer(x); which[me] = c; res = R_OK :: else fi
        fi
     :: else fi }

/* A case before the select waits, under its own lock alone. */
inline look(c, x) {
  if :: res == R_NONE ->
        lock(me, c);
        try_case(c, x);
        unlock(c);
        if :: p != NOBODY -> make_ready(p) :: else fi
     :: else fi }
/* The record of a select that has been resumed.  Who won it has taken its own off, after the next context had left that channel's lock. */
inline withdraw(c) {
  if :: (res == R_OK || res == R_CLOSED) && which[me] == c -> skip
     :: else ->
#ifdef M_WITHDRAWUNLOCKED
        REC(c,me) = 0
#else
        lock(me, c); REC(c,me) = 0; unlock(c)
#endif
  fi }

/* Who has a deadline, and whether there is a canceller.  One way to end a wait must not mend the loss of another, so
 * the scenarios run with both, -DCANCEL_ONLY, -DTIMERS_ONLY, and -DALONE: only the partners and closers. */
#if defined(ALONE) || defined(CANCEL_ONLY)
#define D0 0
#define D1 0
#else
#define D0 1
#ifdef TIMERS_ONLY
#define D1 1
#else
#define D1 0
#endif
#endif

#ifdef EXPIRE
#define SHIELDED_TIMER 0                     /* nothing else ends the wait */
#else
#define SHIELDED_TIMER 1
#endif

/* kind: 1 single on c, 2 select on c and c2, 3 sleep.  after: 0 end; 1 single wait on c2 in the same scope; 2 the same,
 * shielded; 3 shielded sleep; 4 shielded select.  dl: with a timer. */
proctype task(byte me; byte kind; byte c; byte d; byte c2; byte d2; bit dl; byte val; byte after) {
  byte e, p, res;
again:
  atomic { won[me] = 0; inop[me] = 1; res = R_NONE; elem[me] = val; p = NOBODY }
  /* entry check: the epoch first, then the flag */
#ifdef M_FLAGFIRST
  res = (cancelled && !shield[me] -> R_CANCELED : R_NONE);
  e = epoch;
#else
  e = epoch;
  res = (cancelled && !shield[me] -> R_CANCELED : R_NONE);
#endif
  if :: res != R_NONE -> goto done
     :: else -> if :: kind == 1 -> goto single :: kind == 2 -> goto multi :: kind == 3 -> goto sleep fi
  fi;

single:
  arm();
  STORE(me, A_WL, c);
  lock(me, c);
  FENCE_WAITER(me);
  was_cancelled();
  if :: res != R_NONE -> goto single_no :: else fi;
  if :: closed[c] -> res = R_CLOSED; goto single_no :: else fi;
  claim(c, 3-d, R_OK);
  if :: p != NOBODY -> transfer(d); unlock(c); make_ready(p); res = R_OK; goto single_out :: else fi;
#ifndef M_NOFIRED
  if :: dl && fired[me] -> res = R_TIMEDOUT; goto single_no :: else fi;
#endif
  atomic { queued[me] = 1; REC(c,me) = d }
#ifdef M_UNLOCKFIRST
  unlock(c);
  onstack[me] = 0;
#else
  onstack[me] = 0;                           /* gone; the rest is done by the next context of this CPU */
  poll_timers();
  unlock(c);
#endif
  atomic { ready[me] -> ready[me] = 0; assert(!holding[me]); onstack[me] = 1; res = result[me]; assert(won[me] && !queued[me]) }
  goto single_out;
single_no:
  unlock(c);
single_out:
  STORE(me, A_WL, NOCHAN);
  disarm();
  goto done;

multi:
#ifdef LOOK
  if :: skip; look(c, d); look(c2, d2)
     :: skip; look(c2, d2); look(c, d)
  fi;
  if :: res != R_NONE -> goto done :: else fi;
#endif
#ifdef PAIR
  if :: !dl ->
        if :: skip :: look(c2, d2) fi;       /* the first look may be at either */
        if :: res != R_NONE -> goto done :: else fi;
        lock(me, c);
        try_case(c, d);
        if :: res != R_NONE ->
              unlock(c);
              if :: p != NOBODY -> make_ready(p) :: else fi;
              goto done
           :: else fi;
#ifndef M_PARKINGLATE
        STORE(me, A_ST, PARKING);
#endif
        lock(me, c2);
#ifdef M_PARKINGLATE
        STORE(me, A_ST, PARKING);
#endif
        FENCE_WAITER(me);
        was_cancelled();
        try_case(c2, d2);
        goto multi_decide
     :: else fi;
#endif
#ifdef M_ARMPARKING
  STORE(me, A_ST, PARKING);
  arm();
#else
  arm();
multi_again:
  STORE(me, A_ST, PARKING);
#endif
  lock(me, c); lock(me, c2);
  FENCE_WAITER(me);
  was_cancelled();
  if :: skip; try_case(c, d); try_case(c2, d2)
     :: skip; try_case(c2, d2); try_case(c, d)
  fi;
multi_decide:
#ifndef M_NOFIRED
  if :: res == R_NONE && dl && fired[me] -> res = R_TIMEDOUT :: else fi;
#endif
  if :: res != R_NONE ->
        unlock(c); unlock(c2);
#ifdef M_STOPFIRST
        disarm();
#endif
        STORE(me, A_ST, RUNNING);
        if :: p != NOBODY -> make_ready(p) :: else fi;
        disarm(); goto done
     :: else fi;
  atomic { REC(c,me) = d | MULTI; REC(c2,me) = d2 | MULTI }
  atomic { assert(DRAINED(me)); onstack[me] = 0; post_req[me] = 1 }
  atomic { ready[me] -> ready[me] = 0; assert(!holding[me]); onstack[me] = 1; res = result[me]; assert(won[me]) }
#ifndef M_NOWITHDRAW
  withdraw(c); withdraw(c2);
#endif
  STORE(me, A_ST, RUNNING);
#ifndef M_ARMPARKING
  if :: res == R_AGAIN -> atomic { res = R_NONE; won[me] = 0; p = NOBODY } goto multi_again :: else fi;
#endif
  disarm();
  goto done;

sleep:
  arm();
sleep_again:
  STORE(me, A_ST, PARKING);
#ifndef M_NOSLEEPFENCE
  DRAINED(me);                               /* a real fence everywhere: there is no lock to lean on */
#endif
  was_cancelled();
#ifndef M_NOFIRED
  if :: res == R_NONE && fired[me] -> res = R_TIMEDOUT :: else fi;
#endif
  if :: res != R_NONE -> STORE(me, A_ST, RUNNING); disarm(); goto done :: else fi;
  atomic { assert(DRAINED(me)); onstack[me] = 0; post_req[me] = 2 }
  atomic { ready[me] -> ready[me] = 0; assert(!holding[me]); onstack[me] = 1; res = result[me]; assert(won[me]) }
  STORE(me, A_ST, RUNNING);
  if :: res == R_AGAIN -> atomic { res = R_NONE; won[me] = 0 } goto sleep_again :: else fi;
  atomic { LOCK_DRAINS(me) && !wheel -> armed[me] = 0 }

done:
  atomic {
    inop[me] = 0;
    assert(res != R_NONE);
    assert(res != R_CANCELED || (cancelled && !shield[me]));
    assert(res != R_TIMEDOUT || went_off[me]);
    assert(res != R_CLOSED || closed[(kind == 1 -> c : which[me])]);
    if :: res == R_OK && (kind == 1 || which[me] == c) && d == SEND -> sent[val]++
       :: res == R_OK && (kind == 1 || which[me] == c) && d == RECV -> got[elem[me]]++
       :: res == R_OK && kind != 1 && which[me] != c && d2 == SEND -> sent[val]++
       :: res == R_OK && kind != 1 && which[me] != c && d2 == RECV -> got[elem[me]]++
       :: else fi;
    went_off[me] = 0; e = 0; p = 0; res = 0
  }
  if :: after == 0 -> skip
     :: after == 1 -> atomic { kind = 1; c = c2; d = d2; dl = D1; after = 0 } goto again
     :: after == 4 -> shield[me] = 1; atomic { kind = 2; dl = 0; after = 0 } goto again
     :: after == 2 || after == 3 ->
        shield[me] = 1;
        atomic { kind = (after == 2 -> 1 : 3); c = c2; d = d2; dl = (kind == 3 && SHIELDED_TIMER); after = 0 } goto again
  fi;
  over++
}

/* What the next context does after a select or sleep has left its stack.  It may read the waiter's frame only while it
 * holds one of the locks (or before PARKED). */
proctype post(byte me) {
end:
  do
  :: atomic { post_req[me] == 2 -> assert(inop[me]); post_req[me] = 0; state[me] = PARKED }
  :: post_req[me] == 1 ->
     poll_timers();
#ifdef M_UNLOCKBEFOREPARKED
     unlock(0); unlock(1); atomic { post_req[me] = 0; state[me] = PARKED }
#else
     atomic { assert(inop[me]); state[me] = PARKED }
     atomic { assert(inop[me]); unlock(0) }
     atomic { assert(inop[me]); post_req[me] = 0; unlock(1) }
#ifdef M_POSTREADS
     assert(inop[me])
#endif
#endif
  od }

/* Does r concern t?  Looked at when t can neither run nor be claimed by others. */
#ifdef M_LOOKEARLY
#define CONCERNS(t,r) true
#else
#define CONCERNS(t,r) ((r) != R_CANCELED || !shield[t])
#endif

/* End t's wait with r, if it waits.  cpu: whose store buffer. */
inline interrupt(t, r, cpu) {
  do
  :: st = state[t];
     if
#ifdef M_CLAIMPARKING
     :: st == PARKING || st == PARKED ->
        if :: atomic { state[t] == st -> state[t] = CLAIMED; win(t, r) } make_ready(t); break
           :: atomic { state[t] != st -> skip }
        fi
#else
     :: st == PARKING -> state[t] != PARKING
#ifndef M_HELDGONE
     :: st == HELD -> state[t] != HELD
#endif
     :: st == PARKED ->
#ifdef M_PUTBACK
        if :: atomic { state[t] == PARKED -> state[t] = CLAIMED }
              if :: CONCERNS(t,r) -> atomic { win(t, r) } make_ready(t) :: else -> state[t] = PARKED fi; break
#else
        if :: atomic { state[t] == PARKED -> state[t] = CLAIMED; win(t, R_NONE) }
              atomic { result[t] = (CONCERNS(t,r) -> r : R_AGAIN) } make_ready(t); break
#endif
           :: atomic { state[t] != PARKED -> skip }
        fi
#endif
     :: else ->
        w = wait_lock[t];
        if
        :: w == NOCHAN -> break
#ifdef M_LOOKQUEUED
        :: w != NOCHAN && !queued[t] -> break              /* not queued, so nothing to do: wrong */
#endif
        :: else ->
           lock(cpu, w);
#ifdef M_NOLOCKCHECK
           if :: true ->
#else
#ifdef M_NOWAITLOCKCHECK
           if :: queued[t] ->
#else
           if :: queued[t] && wait_lock[t] == w && CONCERNS(t,r) ->
#endif
#endif
                 atomic { assert(REC(w,t)); REC(w,t) = 0; queued[t] = 0; win(t, r) } unlock(w); make_ready(t); break
              :: else -> unlock(w);
                 break
           fi
        fi
     fi
  od;
  st = 0; w = 0 }

proctype timer(byte t) {
  byte st, w;
  do
  :: atomic { armed[t] && !wheel -> wheel = 1; armed[t] = 0; assert(inop[t]); went_off[t] = 1 }
     STORE(CPU_TIMER, A_FIRED, t);
#ifndef M_NOTIMERFENCE
     DRAINED(CPU_TIMER);
#endif
     interrupt(t, R_TIMEDOUT, CPU_TIMER);
     atomic { DRAINED(CPU_TIMER) -> assert(inop[t]); wheel = 0 }
  :: over == NT && !armed[t] -> break
  od }

proctype canceller() {
  byte st, w, t;
#ifdef CANCEL_BY_TIMER
  atomic { !wheel -> wheel = 1 }
#endif
#ifndef M_LOOKFIRST
  STORE(CPU_CANCELLER, A_CANCELLED, 1);
  STORE(CPU_CANCELLER, A_EPOCH, 0);
#ifndef M_PLAINEPOCH
  DRAINED(CPU_CANCELLER);                    /* TSO: it is a locked instruction.  WEAK: it is followed by a fence */
#endif
#endif
  do :: t < NT && !shield[t] -> interrupt(t, R_CANCELED, CPU_CANCELLER); t++
     :: t < NT && shield[t] ->               /* a hint here; what counts is the look under the claim */
#ifndef M_LOOKEARLY
        interrupt(t, R_CANCELED, CPU_CANCELLER);
#endif
        t++
     :: t == NT -> break
  od;
#ifdef M_LOOKFIRST
  STORE(CPU_CANCELLER, A_CANCELLED, 1);
  STORE(CPU_CANCELLER, A_EPOCH, 0);
#endif
#ifdef CANCEL_BY_TIMER
  wheel = 0
#endif
}

/* Looks at t's stack at any time, or not at all. */
proctype holder(byte t) {
  byte w;
  if
  :: atomic { state[t] == PARKED -> state[t] = HELD; assert(!onstack[t]); holding[t] = 1 }
     atomic { holding[t] = 0; state[t] = PARKED }
  :: atomic { wait_lock[t] != NOCHAN -> w = wait_lock[t] }
#ifdef M_HOLDUNLOCKED
     if :: queued[t] && wait_lock[t] == w -> atomic { assert(!onstack[t]); holding[t] = 1 } holding[t] = 0
        :: else fi;
#else
     atomic { !lk[w] -> lk[w] = 1 }
     if :: queued[t] && wait_lock[t] == w -> atomic { assert(!onstack[t]); holding[t] = 1 } holding[t] = 0
        :: else fi;
     unlock(w);
#endif
     w = 0
  :: skip
  fi }

/* The time of t's shield is up. */
proctype expiry(byte t) {
  byte st, w;
  atomic { shield[t] && !wheel -> wheel = 1 }
  STORE(CPU_TIMER, A_SHIELD, t);
  STORE(CPU_TIMER, A_EPOCH, 0);
#ifndef M_NOEXPIRYFENCE
  DRAINED(CPU_TIMER);
#endif
  if :: cancelled -> interrupt(t, R_CANCELED, CPU_TIMER) :: else fi;
  atomic { DRAINED(CPU_TIMER) -> wheel = 0 } }

proctype other_scope() { epoch++ }           /* the cancellation of somebody else */

proctype closer(byte c) {
  byte p, mask, t;
  atomic { !lk[c] -> lk[c] = 1 }
  closed[c] = 1;
  do :: skip; claim(c, RECV, R_CLOSED); if :: p == NOBODY -> break :: else -> mask = mask | (1 << p) fi od;
  do :: skip; claim(c, SEND, R_CLOSED); if :: p == NOBODY -> break :: else -> mask = mask | (1 << p) fi od;
  p = 0;
  unlock(c);
  do :: t < NT -> if :: mask & (1 << t) -> make_ready(t) :: else fi; t++ :: else -> break od }

init {
  byte i;
  atomic {
#ifdef SINGLE                                /* receive and send on one channel */
    run task(0, 1, 0, RECV, 0, 0, D0, 0, 0);
    run task(1, 1, 0, SEND, 0, 0, D1, 1, 0);
#if NT > 2
    run task(2, 1, 0, SEND, 0, 0, D1, 2, 0);
#endif
    run other_scope();
#endif
#ifdef SELECT                                /* select over two receives against two senders */
    run task(0, 2, 0, RECV, 1, RECV, D0, 0, 0);
    run task(1, 1, 0, SEND, 0, 0, D1, 1, 0);
    run task(2, 1, 1, SEND, 0, 0, D1, 2, 0);
#endif
#ifdef SELSEL                                /* select against select, both directions */
    run task(0, 2, 0, SEND, 1, RECV, D0, 1, 0);
    run task(1, 2, 0, RECV, 1, SEND, D1, 2, 0);
#if NT > 2
    run task(2, 1, 1, RECV, 0, 0, D1, 0, 0);
#endif
#endif
#ifdef CLOSE                                 /* a select and a single wait, while the channels are closed */
    run task(0, 2, 0, RECV, 1, SEND, D0, 1, 0);
    run task(1, 1, 0, SEND, 0, 0, D1, 2, 0);
#if NT > 2
    run task(2, 1, 1, RECV, 0, 0, D1, 0, 0);
#endif
    run closer(0);
#ifdef CLOSE_BOTH
    run closer(1);
#endif
#endif
#ifdef SUCC                                  /* two waits in succession on two channels; a slow canceller */
    run task(0, FIRST, 0, RECV, 1, RECV, D0, 0, 1);
    run task(1, 1, 0, SEND, 1, SEND, D1, 1, 1);
#endif
#ifdef SLEEP                                 /* sleep, then receive */
    run task(0, 3, 0, 0, 0, RECV, 1, 0, 1);
    run task(1, 1, 0, SEND, 0, 0, D1, 1, 0);
#endif
#if defined(SHIELD) && !defined(EXPIRE)      /* the second wait is shielded: it must not be cancelled */
    run task(0, FIRST, 0, RECV, 1, RECV, D0, 0, SECOND);
    run task(1, 1, 0, SEND, 1, SEND, D1, 1, (SECOND == 3 -> 0 : 2));
    run closer(1);
#endif
#ifdef EXPIRE                                /* nobody serves the second wait: it ends because the shield's time is up */
    run task(0, FIRST, 0, RECV, 1, RECV, 0, 0, SECOND);
    run task(1, 1, 0, SEND, 0, 0, 0, 1, 0);
    run expiry(0);
#endif
#if !defined(TIMERS_ONLY) && !defined(ALONE)
    run canceller(); run store_buffer(CPU_CANCELLER);
#endif
    i = 0;
    do :: i < NT -> run store_buffer(i); run post(i); run timer(i); i++ :: else -> break od;
    i = 0;
#ifdef HOLD
    run holder(0);
#endif
    run store_buffer(CPU_TIMER)
  }
  over == NT;
  atomic {
    do :: i < NV -> assert(sent[i] == got[i]); i++ :: else -> break od;
    i = 0;
    do :: i < NC*NT -> assert(rec[i] == 0); i++ :: else -> break od
  }
}
