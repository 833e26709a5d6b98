/* SPDX-License-Identifier: MIT */
/* The object that weft is part of: a program, libweft.so, or a plug-in that has the archive inside and may be unloaded.
 *
 * Threads that weft joins are no matter: they are gone when weft_stop returns. A detached thread may outlive that, and with it the last dlclose
 * of the plug-in. So it holds a reference to the plug-in, and its last act must be to drop it, in code that stays. That code is the C library's own: the
 * reference is the value of a pthread key whose destructor is dlclose itself.
 *
 * Rejected: RTLD_NODELETE for the plug-in, by a call to dlopen when the runtime starts. It would be safe, but a new version of the plug-in at
 * the same path would never be loaded. Joining such threads at the unload: it cannot be told from exit, which would take as long as the slowest. */
#include "os/os.h"

#if defined(__GLIBC__)
#include <dlfcn.h>
#include <link.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t holds; /* value: a handle of dlopen */
static bool made;           /* written by `once`, and at the unload */

static void make(void) {
    made = pthread_key_create(&holds, (void (*)(void *))(uintptr_t)dlclose) == 0;
}

__attribute__((destructor)) static void unload(void) {
    if (made) pthread_key_delete(holds);
    made = false;
}

int weft__module_take(void **out) {
    Dl_info info;
    struct link_map *map = NULL;
    *out = NULL;
    if (weft__fault()) return -weft__fault_errno;
    if (!dladdr1((void *)(uintptr_t)make, &info, (void **)&map, RTLD_DL_LINKMAP) || !map->l_name[0]) return 0; /* the program */
    pthread_once(&once, make);
    *out = made ? dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    return *out ? 0 : -ENOMEM;
}

void weft__module_drop(void *module) {
    if (module) dlclose(module);
}

void weft__module_keep(void *module) {
    if (module) (void)pthread_setspecific(holds, module); /* without memory for it, the object stays loaded */
}

#else /* musl never unloads */

int weft__module_take(void **out) {
    *out = NULL;
    return weft__fault() ? -weft__fault_errno : 0;
}

void weft__module_drop(void *module) {
    (void)module;
}

void weft__module_keep(void *module) {
    (void)module;
}

#endif
