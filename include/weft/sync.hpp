/* SPDX-License-Identifier: MIT */
/* Locks that are held while a block lasts, however it is left: return, break, an exception, a panic. With clang's -Wthread-safety they count as
 * holding the lock. */
#ifndef WEFT_SYNC_HPP
#define WEFT_SYNC_HPP

#include <weft/sync.h>

namespace weft {

/* weft::lock_guard g(m); holds the mutex while it lives. Locks as weft_mutex_lock: it waits as long as it takes, cancelled or not. */
class WEFT_SYNC_ATTR(scoped_lockable) lock_guard {
  public:
    explicit lock_guard(weft_mutex &m) WEFT_ACQUIRES(m) : m_(&m) {
        weft_mutex_lock(m_);
    }
    ~lock_guard() WEFT_RELEASES() {
        weft_mutex_unlock(m_);
    }
    lock_guard(const lock_guard &) = delete;
    lock_guard &operator=(const lock_guard &) = delete;

  private:
    weft_mutex *m_;
};

/* Holds an rwlock to read, together with others. As weft_rwlock_rdlock. */
class WEFT_SYNC_ATTR(scoped_lockable) read_guard {
  public:
    explicit read_guard(weft_rwlock &l) WEFT_ACQUIRES_SHARED(l) : l_(&l) {
        weft_rwlock_rdlock(l_);
    }
    ~read_guard() WEFT_RELEASES_ANY() {
        weft_rwlock_rdunlock(l_);
    }
    read_guard(const read_guard &) = delete;
    read_guard &operator=(const read_guard &) = delete;

  private:
    weft_rwlock *l_;
};

/* Holds an rwlock to write, alone. As weft_rwlock_wrlock. */
class WEFT_SYNC_ATTR(scoped_lockable) write_guard {
  public:
    explicit write_guard(weft_rwlock &l) WEFT_ACQUIRES(l) : l_(&l) {
        weft_rwlock_wrlock(l_);
    }
    ~write_guard() WEFT_RELEASES() {
        weft_rwlock_wrunlock(l_);
    }
    write_guard(const write_guard &) = delete;
    write_guard &operator=(const write_guard &) = delete;

  private:
    weft_rwlock *l_;
};

} // namespace weft

#endif
