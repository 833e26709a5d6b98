/* SPDX-License-Identifier: MIT */
#include "os/os.h"

#include "base/lock.h"

#include <sys/syscall.h>
#include <unistd.h>

/* From linux/membarrier.h, which is younger than some systems we build on. */
enum { QUERY = 0, PRIVATE_EXPEDITED = 1 << 3, REGISTER_PRIVATE_EXPEDITED = 1 << 4 };

bool weft__fences = true; /* right, if slow, until weft__barrier_init knows better */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static long membarrier(int command) {
    return syscall(SYS_membarrier, command, 0, 0);
}

static void init(void) {
    if (weft__env_on("WEFT_NO_MEMBARRIER") || weft__fault()) return;
    long can = membarrier(QUERY);
    if (can < 0 || !(can & PRIVATE_EXPEDITED)) return;
    if (membarrier(REGISTER_PRIVATE_EXPEDITED) == 0) weft__fences = false;
}

/* Once for the process: threads that are no workers may be reading weft__fences when a second runtime starts. */
void weft__barrier_init(void) {
    pthread_once(&once, init);
}

void weft__barrier_after_fork(void) {
    if (!weft__fences && membarrier(REGISTER_PRIVATE_EXPEDITED) != 0) weft__fences = true;
}

void weft__heavy_barrier(void) {
    if (weft__fences)
        atomic_thread_fence(memory_order_seq_cst); /* pairs with the fence in weft__light_barrier */
    else if (membarrier(PRIVATE_EXPEDITED) != 0)
        weft__die("membarrier(2) worked at the start and fails now (errno %d): was it forbidden by a filter? "
                  "Set WEFT_NO_MEMBARRIER=1 to do without it.",
                  errno);
}

void weft__lock_straighten(weft__lock *l) {
    uint16_t slot = weft__load(&l->leans, relaxed); /* K1: under `held` */
    weft__store(&l->leans, 0, relaxed);             /* K2: before the barrier */
    weft__heavy_barrier();                          /* K2; pairs with the compiler barrier in weft__lean_take */
    weft__lock_wait_kept(l, slot);
}
