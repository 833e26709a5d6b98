/* SPDX-License-Identifier: MIT
 *
 * The mutex (src/sync/mutex.h): contended lock, unlock, hand-over, and waiters that give up.
 *
 *     lock       CAS: LOCKED off -> on (anybody who comes by)
 *                else under the object's lock q: one CAS that takes it, or sees LOCKED and sets WAITERS; WOKEN off by its bearer;
 *                queue up (one who was woken in front), leave the stack with q held
 *     unlock     not (WAITERS and not WOKEN): CAS LOCKED off
 *                else take q, still LOCKED; take the first waiter off; it is handed the mutex (LOCKED stays, HANDED), or LOCKED off and
 *                WOKEN on in one store; leave q; resume it.  Which of the two is chosen freely here (there: by time)
 *     interrupt  under q: a waiter on the queue is taken off, with an error; it is not told again
 *     give up    a waiter whose error has come while it ran leaves by a CAS that sees LOCKED, and takes WOKEN off if it bears it
 *
 * The object lives in the users' memory: the last of NT users that is through frees it right after its unlock (freed); nobody may touch it
 * then.  All accesses are atomic steps; the memory orders are
 * acquire and release around them, and q, so interleaving is enough.
 *
 * Checked: one holder at a time; nobody touches the mutex after it was freed; every waiter is resumed, once for each park (no
 * invalid end state); HANDED and LOCKED agree.
 *
 * Mutants, each must fail:
 *   M_WOKENLOST     one who gives up, and was woken, keeps WOKEN set    M_WOKENBLIND   WOKEN off without seeing LOCKED
 *   M_UNLOCKFIRST   unlock takes LOCKED off before it takes q           M_NOWAITERS    WAITERS off though others are queued
 *   M_NOANNOUNCE    a waiter queues up without WAITERS                  M_HANDFREE     hand-over takes LOCKED off as well
 */
#ifndef NT
#define NT 3
#endif
#ifndef FAIL
#define FAIL 1                               /* of these, so many have a deadline */
#endif
#define NOBODY 7
#define R_WOKEN 1
#define R_HANDED 2
#define R_GAVEUP 3

/* the state word */
bit locked, waiters, woken, handed;
bit q;                                       /* the object's lock, of the table: it stays */
chan queue = [NT] of { byte };               /* front first */

byte result[NT];
bit  queued[NT], ready[NT], may_fail[NT], told[NT];

/* ghosts */
byte holder = NOBODY;
byte users = NT;                             /* who still has to use it; under the mutex */
bit  freed;
#define TOUCH assert(!freed)

inline take_q()  { atomic { q == 0 -> q = 1 } }
inline leave_q() { q = 0 }

inline got(me) { assert(holder == NOBODY); holder = me }

/* waits: the stack was left when q is free again */
inline park(me) { q = 0; atomic { ready[me] == 1 -> ready[me] = 0 } }

inline lock(me) {
  has = 0; w = 0;
  do
  :: atomic { !locked -> TOUCH; locked = 1; got(me); has = 1 } -> break     /* whoever comes by; only before it waits */
  :: true ->
     take_q();
again:
     quit = (may_fail[me] && told[me]);
     TOUCH;
     if
     :: atomic { !locked -> locked = 1; got(me); has = 1;
          if :: w -> woken = 0 :: else fi;
          if :: (len(queue) == 0) -> waiters = 0 :: else fi }
     :: atomic { locked && quit ->
#ifndef M_WOKENLOST
          if :: w -> woken = 0 :: else fi;
#endif
        }
#ifdef M_WOKENBLIND
     :: atomic { quit -> if :: w -> woken = 0 :: else fi }
#endif
     :: atomic { locked && !quit ->
#ifndef M_NOANNOUNCE
          waiters = 1;
#endif
          if :: w -> woken = 0 :: else fi;
          queued[me] = may_fail[me] }          /* a wait that nobody else may end is not `queued` */
        if :: w -> atomic { queue!me; k = len(queue) - 1;     /* to the front: turn the rest behind it */
                            do :: k > 0 -> queue?x; queue!x; k-- :: else -> break od }
           :: else -> queue!me
        fi;
        park(me);
        w = 0;
        if
        :: result[me] == R_WOKEN -> w = 1; take_q(); goto again
        :: result[me] == R_HANDED -> TOUCH; assert(locked && handed && holder == me); handed = 0; has = 1; goto out
        :: result[me] == R_GAVEUP -> goto out
        fi
     fi;
     leave_q();
     break
  od;
out:
  skip
}

inline unlock(me) {
  y = NOBODY;
  holder = NOBODY;
#ifdef M_UNLOCKFIRST
  atomic { TOUCH; slow = waiters && !woken; locked = 0 };
  if :: slow -> take_q(); TOUCH;
        if :: !locked && (len(queue) > 0) && !woken -> queue?y; queued[y] = 0; woken = 1; waiters = (len(queue) > 0); result[y] = R_WOKEN
           :: else
        fi;
        leave_q()
     :: else
  fi;
#else
  if
  :: atomic { !(waiters && !woken) -> TOUCH; locked = 0 }
  :: atomic { waiters && !woken -> TOUCH };
     take_q();
     TOUCH;
     if :: (len(queue) > 0) -> queue?y; queued[y] = 0 :: else fi;
     if
     :: y == NOBODY -> atomic { waiters = 0; locked = 0 }
     :: y != NOBODY -> atomic { result[y] = R_WOKEN; woken = 1;
#ifdef M_NOWAITERS
          waiters = 0;
#else
          waiters = (len(queue) > 0);
#endif
          locked = 0 }
     :: y != NOBODY -> atomic { result[y] = R_HANDED; handed = 1; waiters = (len(queue) > 0); holder = y;
#ifdef M_HANDFREE
          locked = 0
#endif
        }
     fi;
     leave_q()
  fi;
#endif
  if :: y != NOBODY -> assert(!ready[y]); ready[y] = 1 :: else fi
}

proctype user(byte me) {
  bit has, last, w, quit, slow;
  byte k, x, y;
retry:
  lock(me);
  if :: !has -> may_fail[me] = 0; goto retry             /* it gave up; it comes again, and waits for ever */
     :: atomic { !has && users > 1 -> users-- }; goto gone /* or never */
     :: has
  fi;
  atomic { users--; last = (users == 0) };   /* under the mutex */
  unlock(me);
  if :: last -> atomic { TOUCH; assert(!locked && holder == NOBODY); freed = 1 } :: else fi;
gone:
  skip
}

/* A deadline or a cancellation, for those who may fail. */
proctype interrupter(byte t) {
  byte x, k;
  told[t] = 1;
  take_q();
  if
  :: queued[t] -> queued[t] = 0;
     atomic { k = len(queue); do :: k > 0 -> queue?x; if :: x != t -> queue!x :: else fi; k-- :: else -> break od };
     result[t] = R_GAVEUP;
     q = 0;
     assert(!ready[t]); ready[t] = 1
  :: else -> q = 0
  fi
}

init {
  byte i;
  atomic {
    do :: i < FAIL -> may_fail[i] = 1; run interrupter(i); i++ :: else -> break od;
    i = 0;
    do :: i < NT -> run user(i); i++ :: else -> break od
  }
}
