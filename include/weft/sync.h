/* SPDX-License-Identifier: MIT */
/* Locks and what belongs to them: mutex, rwlock, condition variable, semaphore, wait group, once, barrier.
 *
 * All live in your own memory, need no initialisation but zero, and allocate nothing; memory may be freed as soon as nobody uses the
 * object, also by whoever has just unlocked it. Tasks and plain threads use them alike, mixed, with or without a runtime.
 *
 * What takes a deadline is a cancellation point: WEFT_ETIMEDOUT, WEFT_EAGAIN (WEFT_POLL) and WEFT_ECANCELED leave the object as it was.
 * With WEFT_POLL a lock that is free is taken in a cancelled scope, too (base.h). What takes no
 * deadline waits as long as it takes, or tries; it never looks whether the scope is cancelled. Waiters are served first come, first served, except that a mutex may be taken by
 * whoever comes by while the one who was woken is still on its way; nobody is overtaken like that for more than a millisecond.
 * A timer's function must not wait: there, a lock that is not free aborts unless it is tried (trylock, WEFT_POLL).
 * Misuse that can only be a bug prints a sentence and aborts.
 *
 * With clang's -Wthread-safety, an access to a variable that is WEFT_GUARDED_BY a lock without holding it is a warning. */
#ifndef WEFT_SYNC_H
#define WEFT_SYNC_H

#include <weft/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* clang's capability analysis; nothing elsewhere. */
#if defined(__clang__) && !defined(SWIG)
#define WEFT_SYNC_ATTR(x) __attribute__((x))
#else
#define WEFT_SYNC_ATTR(x)
#endif
/* For your own declarations: a variable that may be touched only with the lock held; what a pointer points to, likewise. */
#define WEFT_GUARDED_BY(...) WEFT_SYNC_ATTR(guarded_by(__VA_ARGS__))
#define WEFT_PT_GUARDED_BY(...) WEFT_SYNC_ATTR(pt_guarded_by(__VA_ARGS__))
/* A function that is called with the lock held (held to read at least); that locks; that unlocks; that must not be called with it. */
#define WEFT_REQUIRES(...) WEFT_SYNC_ATTR(requires_capability(__VA_ARGS__))
#define WEFT_REQUIRES_SHARED(...) WEFT_SYNC_ATTR(requires_shared_capability(__VA_ARGS__))
#define WEFT_ACQUIRES(...) WEFT_SYNC_ATTR(acquire_capability(__VA_ARGS__))
#define WEFT_ACQUIRES_SHARED(...) WEFT_SYNC_ATTR(acquire_shared_capability(__VA_ARGS__))
#define WEFT_RELEASES(...) WEFT_SYNC_ATTR(release_capability(__VA_ARGS__))
#define WEFT_RELEASES_SHARED(...) WEFT_SYNC_ATTR(release_shared_capability(__VA_ARGS__))
#define WEFT_RELEASES_ANY(...) WEFT_SYNC_ATTR(release_generic_capability(__VA_ARGS__))
#define WEFT_EXCLUDES(...) WEFT_SYNC_ATTR(locks_excluded(__VA_ARGS__))
/* A function that locks if it returns 0. */
#define WEFT_TRY_ACQUIRES(...) WEFT_SYNC_ATTR(try_acquire_capability(0, __VA_ARGS__))
#define WEFT_TRY_ACQUIRES_SHARED(...) WEFT_SYNC_ATTR(try_acquire_shared_capability(0, __VA_ARGS__))
/* A function that the analysis cannot follow. */
#define WEFT_NO_THREAD_SAFETY WEFT_SYNC_ATTR(no_thread_safety_analysis)

/* ---- mutex ---- */

/* All zero: unlocked. Its contents are the runtime's. */
typedef struct WEFT_SYNC_ATTR(capability("mutex")) weft_mutex {
    uint64_t weft__private[4];
} weft_mutex;

/* Locks; waits as long as it takes, cancelled or not. Not recursive: locking it again aborts. */
WEFT_API void weft_mutex_lock(weft_mutex *m) WEFT_ACQUIRES(*m);
/* Locks if nobody has it: 0 or WEFT_EAGAIN. Not a cancellation point. */
WEFT_API int weft_mutex_trylock(weft_mutex *m) WEFT_TRY_ACQUIRES(*m);
/* Locks: 0; WEFT_ETIMEDOUT, WEFT_EAGAIN, WEFT_ECANCELED. */
WEFT_API int weft_mutex_lock_until(weft_mutex *m, weft_deadline deadline) WEFT_TRY_ACQUIRES(*m);
/* Unlocks. Whoever locked it does; anybody else aborts. */
WEFT_API void weft_mutex_unlock(weft_mutex *m) WEFT_RELEASES(*m);
/* Aborts if somebody holds it or waits for it; otherwise it is all zero again. Not needed before the memory goes. NULL is allowed. */
WEFT_API void weft_mutex_destroy(weft_mutex *m) WEFT_EXCLUDES(*m);

/* ---- rwlock ---- */

/* All zero: unlocked. */
typedef struct WEFT_SYNC_ATTR(capability("rwlock")) weft_rwlock {
    uint64_t weft__private[4];
} weft_rwlock;

/* Locks to read, together with other readers; to write, alone. Waits as long as it takes. In the order of arrival: a writer that waits holds
 * later readers back, so it does not starve; hence a reader must not lock again, neither to read nor to write. */
WEFT_API void weft_rwlock_rdlock(weft_rwlock *l) WEFT_ACQUIRES_SHARED(*l);
WEFT_API void weft_rwlock_wrlock(weft_rwlock *l) WEFT_ACQUIRES(*l);
/* 0 or WEFT_EAGAIN. Not cancellation points. */
WEFT_API int weft_rwlock_tryrdlock(weft_rwlock *l) WEFT_TRY_ACQUIRES_SHARED(*l);
WEFT_API int weft_rwlock_trywrlock(weft_rwlock *l) WEFT_TRY_ACQUIRES(*l);
/* 0; WEFT_ETIMEDOUT, WEFT_EAGAIN, WEFT_ECANCELED. */
WEFT_API int weft_rwlock_rdlock_until(weft_rwlock *l, weft_deadline deadline) WEFT_TRY_ACQUIRES_SHARED(*l);
WEFT_API int weft_rwlock_wrlock_until(weft_rwlock *l, weft_deadline deadline) WEFT_TRY_ACQUIRES(*l);
/* Unlocks. A writer's lock is unlocked by that writer; anything else aborts. */
WEFT_API void weft_rwlock_rdunlock(weft_rwlock *l) WEFT_RELEASES_SHARED(*l);
WEFT_API void weft_rwlock_wrunlock(weft_rwlock *l) WEFT_RELEASES(*l);
/* Whichever of the two it is. */
WEFT_API void weft_rwlock_unlock(weft_rwlock *l) WEFT_RELEASES_ANY(*l);
/* As weft_mutex_destroy. */
WEFT_API void weft_rwlock_destroy(weft_rwlock *l) WEFT_EXCLUDES(*l);

/* ---- condition variable ---- */

/* All zero: nobody waits. */
typedef struct weft_cond {
    uint64_t weft__private[4];
} weft_cond;

/* Unlocks m, waits for a signal, and locks m again, also if it fails: 0; WEFT_ETIMEDOUT, WEFT_EAGAIN, WEFT_ECANCELED. No signal is lost that is
 * given after m was unlocked, and a signal that was given to this waiter is not given to a deadline. Look at your condition again:
 * somebody else may have been faster. All who wait at a time use the same mutex. */
WEFT_API int weft_cond_wait(weft_cond *c, weft_mutex *m, weft_deadline deadline) WEFT_REQUIRES(*m);
/* Wakes the one that has waited longest, if any; with or without the mutex. */
WEFT_API void weft_cond_signal(weft_cond *c);
/* Wakes all. */
WEFT_API void weft_cond_broadcast(weft_cond *c);
/* Aborts if somebody waits. NULL is allowed. */
WEFT_API void weft_cond_destroy(weft_cond *c);

/* ---- semaphore ---- */

#define WEFT_SEM_MAX 0x3fffffffu

/* All zero: no unit there. */
typedef struct weft_sem {
    uint64_t weft__private[3];
} weft_sem;

/* `units` to begin with. WEFT_EINVAL: more than WEFT_SEM_MAX. */
WEFT_API int weft_sem_init(weft_sem *s, uint32_t units);
/* Takes a unit: 0; WEFT_ETIMEDOUT, WEFT_EAGAIN, WEFT_ECANCELED. */
WEFT_API int weft_sem_acquire(weft_sem *s, weft_deadline deadline);
/* Takes several units at once, or none: as weft_sem_acquire. Waiters are served in their order: while the first one waits for its units, no later one gets any,
 * however few it wants. 0 units: 0 at once, cancelled or not. WEFT_EINVAL: more than WEFT_SEM_MAX. */
WEFT_API int weft_sem_acquire_n(weft_sem *s, uint32_t units, weft_deadline deadline);
/* 0 or WEFT_EAGAIN. Not a cancellation point. */
WEFT_API int weft_sem_try(weft_sem *s);
/* How many units can be taken now: 0 while somebody waits. It may be another number by the time you look at it. */
WEFT_API uint32_t weft_sem_available(weft_sem *s);
/* Gives a unit, or several, back; who waits longest gets it. From anywhere. More than WEFT_SEM_MAX together abort. */
WEFT_API void weft_sem_release(weft_sem *s);
WEFT_API void weft_sem_release_n(weft_sem *s, uint32_t units);
/* Aborts if somebody waits. NULL is allowed. */
WEFT_API void weft_sem_destroy(weft_sem *s);

/* ---- wait group ---- */

/* All zero: nothing to wait for. */
typedef struct weft_waitgroup {
    uint64_t weft__private[4];
} weft_waitgroup;

/* So many more (or, if negative, fewer) things to wait for. Below zero aborts. Add before those who call done can. */
WEFT_API void weft_waitgroup_add(weft_waitgroup *g, int n);
/* One of them is done. */
WEFT_API void weft_waitgroup_done(weft_waitgroup *g);
/* Waits until none is left: 0; WEFT_ETIMEDOUT, WEFT_EAGAIN, WEFT_ECANCELED. */
WEFT_API int weft_waitgroup_wait(weft_waitgroup *g, weft_deadline deadline);
/* Aborts if somebody waits. NULL is allowed. */
WEFT_API void weft_waitgroup_destroy(weft_waitgroup *g);

/* ---- once ---- */

/* All zero: it has not been done. */
typedef struct weft_once {
    uint64_t weft__private[5];
} weft_once;

/* The first caller calls fn(arg); the others wait for it as long as it takes. All get its result, whenever they come; if it panicked,
 * WEFT_EPANIC, and the panic is reported as one that no weft_try contains. WEFT_EREENTRANT: called by fn itself. */
WEFT_API int weft_once_run(weft_once *o, weft_fn *fn, void *arg);

/* ---- barrier ---- */

/* Used only after weft_barrier_init. */
typedef struct weft_barrier {
    uint64_t weft__private[4];
} weft_barrier;

/* For `parties` that meet. WEFT_EINVAL: none. */
WEFT_API int weft_barrier_init(weft_barrier *b, uint32_t parties);
/* Waits until all have come: 1 for the last to come, 0 for the others; then the next round begins. WEFT_ETIMEDOUT, WEFT_EAGAIN, WEFT_ECANCELED: it
 * does not count as having come. */
WEFT_API int weft_barrier_wait(weft_barrier *b, weft_deadline deadline);
/* Aborts if somebody waits. NULL is allowed. */
WEFT_API void weft_barrier_destroy(weft_barrier *b);

#ifdef __cplusplus
}
#endif
#endif
