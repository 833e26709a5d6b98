/* SPDX-License-Identifier: MIT */
#include "os/os.h"

#ifdef WEFT_TSAN

/* TSan's own; they count, for each fiber, and concern writes too. */
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateBenignRaceSized(const char *file, int line, void *p, size_t n, const char *why);

bool weft__san_tasks;

WEFT_NO_TSAN __attribute__((constructor)) static void choose(void) {
    weft__san_tasks = !weft__env_on("WEFT_TSAN_INSIDE");
}

WEFT_NO_TSAN void weft__san_unchecked_begin(void) {
    if (weft__san_tasks) AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
}

WEFT_NO_TSAN void weft__san_unchecked_end(void) {
    if (weft__san_tasks) AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

void weft__san_threads_own(void *p, size_t n) {
    if (weft__san_tasks) AnnotateBenignRaceSized(__FILE__, __LINE__, p, n, "of the thread that the task runs on");
}

#endif
