/* SPDX-License-Identifier: MIT */
/* The file of a Unix listener.
 *
 * A path says little about a file: by the time a listener is closed, another program may have
 * put something else there, and a relative path may lead elsewhere. So nothing is removed by
 * name alone:
 *
 *   at bind   what is in the way is removed only if it is a socket that refuses a connection: a
 *             process that has ended left it behind
 *   at close  the file is removed only if it is the one that bind(2) made (device and inode are
 *             the same), and no socket is bound to it any more: a process that shares the
 *             listener goes on serving
 *
 * The inode number cannot be used again while our socket is open, for the socket holds the
 * inode. So the comparison is made before the socket is closed. A file that takes the path after
 * that has a socket bound to it, and is left alone.
 *
 * Whether a socket is bound to the file is asked by connecting a datagram socket: the kernel
 * looks for the socket first and compares the types then. A listener that is alive notices
 * nothing, as it would of a connection. */
#include <limits.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "net/net.h"
#include "os/os.h"

static const char *file_of(const weft_addr *a) {
    const struct sockaddr_un *u = (const struct sockaddr_un *)(const void *)&a->sa;
    return a->sa.ss_family == AF_UNIX && u->sun_path[0] ? u->sun_path : NULL;
}

/* Connects a socket of the given type to the file. Returns 0 or -errno. */
static int probe(const char *file, int type) {
    struct sockaddr_un u = {.sun_family = AF_UNIX};
    size_t n = strlen(file);
    if (n >= sizeof u.sun_path) return -ENAMETOOLONG;
    memcpy(u.sun_path, file, n);
    int fd = weft__sock_new(AF_UNIX, type, 0);
    if (fd < 0) return fd;
    int err = weft__sock_connect(fd, (const struct sockaddr *)&u, sizeof u);
    (void)weft__desc_os_close(fd);
    return err;
}

static bool same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Returns whether the file is a socket at which nothing listens. It may have been exchanged
 * meanwhile, which a second look shows. */
static bool left_over(const char *file) {
    struct stat before, after;
    if (weft__desc_os_lstat(file, &before) < 0 || !S_ISSOCK(before.st_mode)) return false;
    if (probe(file, SOCK_STREAM) != -ECONNREFUSED) return false;
    return weft__desc_os_lstat(file, &after) == 0 && same(&before, &after);
}

/* Stores the path as it will be valid after a chdir(2), in memory of its own. Returns 0 or an
 * error. */
static int make_absolute(const char *file, char **out) {
    char cwd[PATH_MAX] = "";
    int err = file[0] == '/' ? 0 : weft__desc_os_cwd(cwd, sizeof cwd);
    if (err) return err;
    size_t n = strlen(cwd), m = strlen(file);
    char *path = weft__malloc(n + m + 2);
    if (!path) return WEFT_ENOMEM;
    memcpy(path, cwd, n);
    if (n) path[n++] = '/';
    memcpy(path + n, file, m + 1);
    *out = path;
    return 0;
}

static int bind_over(int fd, const weft_addr *a, const char *file) {
    int err = weft__sock_bind(fd, (const struct sockaddr *)&a->sa, a->len);
    if (err != -EADDRINUSE || !left_over(file) || weft__desc_os_unlink(file) < 0) return err;
    return weft__sock_bind(fd, (const struct sockaddr *)&a->sa, a->len);
}

/* Notes which file bind(2) has made, and sets its mode. */
static int bound(weft__sockfile *out, const char *file, int mode) {
    struct stat st;
    int err = weft__desc_os_lstat(file, &st);
    if (!err && mode) err = weft__desc_os_chmod(file, (mode_t)mode);
    out->device = err ? 0 : st.st_dev;
    out->inode = err ? 0 : st.st_ino;
    return err;
}

int weft__sockfile_bind(weft__sockfile *out, int fd, const weft_addr *a, int mode) {
    const char *file = file_of(a);
    out->path = NULL;
    if (!file) return weft__sock_bind(fd, (const struct sockaddr *)&a->sa, a->len);
    char *path;
    int err = make_absolute(file, &path);
    if (err) return err;
    err = bind_over(fd, a, file);
    if (!err) {
        err = bound(out, file, mode);
        if (err) (void)weft__desc_os_unlink(file); /* made a moment ago */
    }
    if (err)
        weft__free(path);
    else
        out->path = path;
    return err;
}

bool weft__sockfile_is_ours(const weft__sockfile *s) {
    struct stat st;
    if (!s->path || weft__desc_os_lstat(s->path, &st) < 0) return false;
    return S_ISSOCK(st.st_mode) && st.st_dev == s->device && st.st_ino == s->inode;
}

/* A relative path may be too long for connect(2) once it is absolute: then nothing can be asked,
 * and the file is taken for ours alone. */
bool weft__sockfile_is_served(const weft__sockfile *s) {
    int err = probe(s->path, SOCK_DGRAM);
    return err != -ECONNREFUSED && err != -ENAMETOOLONG;
}

void weft__sockfile_remove(const weft__sockfile *s) {
    (void)weft__desc_os_unlink(s->path);
}
