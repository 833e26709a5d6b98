/* SPDX-License-Identifier: MIT
 *
 * Who computes runs in long slices of the kernel's, until it calls the runtime again (src/sched/handoff.h, H11).
 *
 * gate      of one worker: 0 no slot, 2 its slot, 3 requested
 * yields    w->yields_cpu: whoever makes it false by an exchange ends it
 * slow      what the kernel was told last
 *
 * One worker, which enters and leaves the runtime, reopens its gate, gives its slot up and gets it again, and finds it lost; one who holds the requester
 * lock and marks it, or takes its slot as a stray's; and another sentry, which finds it blocked. Memory is sequentially consistent: `yields` is
 * stored before the gate is written by a read-modify-write, and loaded behind one that has read from it. Telling the kernel is a step
 * of its own, on both sides.
 *
 * Checked: when all have come to their ends, the kernel runs the worker as usual, and so it does when the worker has entered the runtime, with its slot
 * and nobody's request, unless somebody is in the middle of marking it or of ending that; no dead end.
 *
 * Mutants, each must fail:
 *   M_NOREOPEN  it is not ended where the gate is reopened     M_NODISOWN  nor where the slot is given up
 *   M_NOLOST    nor where it was lost                          M_NOGONE    who marks does not look whether the slot was given up meanwhile
 *   M_NOWRITE   a gate that was requested before the mark is not written again
 *   M_FLAGFIRST marked before the kernel is told               M_NOREQUEST the gate is not written at all
 *   M_NOUNDO    a taker whose commit failed leaves the mark
 * Lines swapped, likewise:
 *   M_HURRYFIRST  ended before the gate is reopened            M_HURRYEARLY  ended before the slot is given up
 */
#ifndef CALLS
#define CALLS 3
#endif
#ifndef MARKS
#define MARKS 2
#endif
#ifndef LOOKS
#define LOOKS 1
#endif
byte gate = 2;
bit yields, slow, inside, marking, idle_slot;
byte ended, ending;

/* weft__worker_hurry: the exchange, then the system call. */
inline hurry() {
  if :: atomic { yields -> yields = 0; ending++ }; atomic { slow = 0; ending-- }
     :: atomic { !yields -> skip }
  fi }

proctype worker() {
  byte calls;
  do
  :: calls == CALLS -> break
  :: else -> calls++;
     /* user code; then a call */
     inside = 1;
     if
     :: atomic { gate == 2 -> skip }
#ifdef M_HURRYFIRST
     :: gate == 3 -> hurry();
        if :: atomic { gate == 3 -> gate = 2 } :: atomic { gate != 3 -> skip } fi;
#else
     :: atomic { gate == 3 -> gate = 2 };
#ifndef M_NOREOPEN
        hurry();
#endif
#endif
        atomic { assert(!slow || marking || ending || gate != 2) }
     :: atomic { gate == 0 -> skip };
#ifndef M_NOLOST
        hurry();
        atomic { assert(!slow || marking || ending || gate != 2) };
#endif
        if :: atomic { idle_slot -> idle_slot = 0; gate = 2 }
           :: atomic { !idle_slot -> inside = 0; goto asleep }   /* left to others: for ever, here */
        fi
     fi;
     if :: skip
        ::                                                        /* gives it up and sleeps */
#ifdef M_HURRYEARLY
           hurry();
           atomic { gate = 0 };
#else
           atomic { gate = 0 };
#ifndef M_NODISOWN
           hurry();
#endif
#endif
           idle_slot = 1;
           if :: atomic { idle_slot -> idle_slot = 0; gate = 2 }  /* woken */
              :: atomic { inside = 0; goto asleep }
           fi
     fi;
     inside = 0
  od;
  /* its last call: its task ends, and it sleeps */
  inside = 1;
  if :: atomic { gate != 0 -> gate = 0 }
     :: atomic { gate == 0 -> skip }
  fi;
#ifndef M_NODISOWN
  hurry();
#endif
  inside = 0;
asleep:
  ended++ }

inline mark() {
  if :: atomic { yields -> skip }
     :: atomic { !yields -> marking = 1 };
#ifdef M_FLAGFIRST
        yields = 1; slow = 1;
#else
        slow = 1; yields = 1;
#endif
  fi }

proctype requester() {
  byte marks, seen;
  do
  :: marks == MARKS -> break
  :: else -> marks++;
     if
     :: atomic { gate != 0 -> seen = gate };                      /* weft__worker_yield_cpu */
        mark();
#ifndef M_NOREQUEST
        if
#ifdef M_NOWRITE
           :: seen == 3
           :: atomic { seen != 3 && gate -> gate = 3 }
#else
           :: atomic { gate -> gate = 3 }
#endif
           :: atomic { gate == 0 -> skip };
#ifndef M_NOGONE
              hurry()
#else
              skip
#endif
        fi;
#endif
        marking = 0
     :: atomic { gate == 2 -> gate = 3 };                         /* a take-over */
        if :: inside
           :: !inside -> mark();
              if :: atomic { gate == 3 -> gate = 0 }; idle_slot = 1
                 :: atomic { gate != 3 -> skip };
#ifndef M_NOUNDO
                    hurry()
#else
                    skip
#endif
              fi;
              marking = 0
        fi
     :: skip
     fi
  od;
  ended++ }

/* The watch finds the worker blocked. */
proctype sentry() {
  byte looks;
  do :: looks == LOOKS -> break
     :: else -> looks++; hurry()
  od;
  ended++ }

init {
  atomic { run worker(); run requester(); run sentry() };
  ended == 3;
  /* One that lost its slot and sleeps in the model has passed hurry; one that computes on for ever has not: there is none. */
  assert(!slow);
  assert(!yields)
}
