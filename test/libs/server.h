/* SPDX-License-Identifier: MIT */
/* A server of somebody else's for one test: in a directory of its own, on a Unix socket there, and gone when the test ends, however it does. Only from
 * the main thread, without a runtime: the kernel ends a server whose starter's thread has ended. */
#ifndef WEFT_TEST_SERVER_H
#define WEFT_TEST_SERVER_H

#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heartbeat.h"

static struct {
    char dir[64];
    pid_t pid;
    const char *user; /* whom it runs as, if we are root; NULL: as we do */
} server;

static inline void server_become_user(void) {
    struct passwd *p = server.user && geteuid() == 0 ? getpwnam(server.user) : NULL;
    if (p && (setgid(p->pw_gid) != 0 || setuid(p->pw_uid) != 0)) _exit(126);
}

/* Only in the child: what it prints goes to the file "log". */
static inline void server_exec(char **argv) {
    int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644), none = open("/dev/null", O_RDONLY);
    if (log < 0 || none < 0 || dup2(none, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0) _exit(126);
    execvp(argv[0], argv);
    _exit(127);
}

static inline pid_t server_spawn(char **argv, int at_our_end) {
    pid_t parent = getpid(), child = fork();
    CHECK_GE(child, 0);
    if (child) return child;
    setpgid(0, 0);
    if (chdir(server.dir) != 0) _exit(126);
    server_become_user();
    prctl(PR_SET_PDEATHSIG, at_our_end); /* after the change of user, which clears it */
    if (getppid() != parent) _exit(126);
    server_exec(argv);
    return 0;
}

/* A directory for the server, which `user` (NULL: nobody in particular) may write to. */
static inline void server_open(const char *user) {
    struct passwd *p = user ? getpwnam(user) : NULL;
    strcpy(server.dir, "/tmp/weft-server-XXXXXX");
    CHECK(mkdtemp(server.dir));
    server.user = p ? user : NULL;
    CHECK_EQ(chmod(server.dir, 0711), 0);
    if (p && geteuid() == 0) CHECK_EQ(chown(server.dir, p->pw_uid, p->pw_gid), 0);
}

/* A file in that directory, with what printf makes of fmt. */
static inline void server_file(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline void server_file(const char *name, const char *fmt, ...) {
    char path[128];
    va_list ap;
    snprintf(path, sizeof path, "%s/%s", server.dir, name);
    FILE *f = fopen(path, "w");
    CHECK(f);
    va_start(ap, fmt);
    vfprintf(f, fmt, ap);
    va_end(ap);
    CHECK_EQ(fclose(f), 0);
}

/* Runs a program in the directory until it ends; what it exits with. */
static inline int server_run(char **argv) {
    int status;
    pid_t p = server_spawn(argv, SIGKILL);
    CHECK_EQ(waitpid(p, &status, 0), p);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static inline void server_show_log(void) {
    char line[256], path[128];
    snprintf(path, sizeof path, "%s/log", server.dir);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) fputs(line, stderr);
    if (f) fclose(f);
}

static inline bool server_answers(const char *socket_name) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_GE(fd, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", server.dir, socket_name);
    bool ok = connect(fd, (struct sockaddr *)&a, sizeof a) == 0;
    close(fd);
    return ok;
}

/* Starts it, and waits until it listens on the socket. It gets the signal if the test ends before it. */
static inline void server_start(char **argv, const char *socket_name, int at_our_end) {
    server.pid = server_spawn(argv, at_our_end);
    while (!server_answers(socket_name)) {
        if (waitpid(server.pid, NULL, WNOHANG) != 0) {
            server_show_log();
            test_fail(__FILE__, __LINE__, "%s has ended", argv[0]);
        }
        usleep(10000);
    }
}

/* It is told to end, and the directory goes. */
static inline void server_close(int sig) {
    int status;
    char *rm[] = {"rm", "-rf", server.dir, NULL};
    if (server.pid > 0) {
        CHECK_EQ(kill(server.pid, sig), 0);
        CHECK_EQ(waitpid(server.pid, &status, 0), server.pid);
        (void)kill(-server.pid, SIGKILL); /* what it may have left */
        server.pid = 0;
    }
    pid_t p = fork();
    if (p == 0) {
        execvp(rm[0], rm);
        _exit(127);
    }
    CHECK_EQ(waitpid(p, &status, 0), p);
}

/* The program, if it is installed; else the test is skipped. */
static inline const char *server_find(const char *const *paths, const char *why_not) {
    for (; *paths; paths++)
        if (access(*paths, X_OK) == 0) return *paths;
    test_skip(why_not);
}

#endif
