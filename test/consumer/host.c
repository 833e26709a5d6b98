/* SPDX-License-Identifier: MIT */
/* host archive|shared PLUGIN COPY: loads plug-ins with weft inside or beside them, and unloads them. COPY is another file of the same contents. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(x)                                                                                                               \
    do {                                                                                                                       \
        if (!(x)) {                                                                                                            \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #x);                                                  \
            exit(1);                                                                                                           \
        }                                                                                                                      \
    } while (0)

typedef int fn(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool has_worked, may_end, may_answer;

static void set(bool *what, bool to) {
    pthread_mutex_lock(&lock);
    *what = to;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_for(bool *what) {
    pthread_mutex_lock(&lock);
    while (!*what) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* Instead of the C library's: it answers when it is told to. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res) {
    (void)node, (void)service, (void)hints, (void)res;
    wait_for(&may_answer);
    return EAI_NONAME;
}

static void *load(const char *path) {
    void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!h) fprintf(stderr, "%s\n", dlerror());
    CHECK(h);
    return h;
}

static bool is_loaded(const char *path) {
    void *h = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (h) dlclose(h);
    return h;
}

static int call(void *plugin, const char *name) {
    fn *f;
    *(void **)&f = dlsym(plugin, name);
    CHECK(f);
    return f();
}

static void *uses_it_and_stays(void *plugin) {
    CHECK(call(plugin, "plugin_work") == 0);
    set(&has_worked, true);
    wait_for(&may_end);
    return NULL;
}

static int threads(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* A thread that has used the plug-in ends when it is gone. */
static void unload_before_a_thread_ends(const char *path) {
    pthread_t t;
    void *h = load(path);
    CHECK(call(h, "plugin_work") == 0);
    set(&has_worked, false);
    set(&may_end, false);
    CHECK(pthread_create(&t, NULL, uses_it_and_stays, h) == 0);
    wait_for(&has_worked);
    dlclose(h);
    CHECK(!is_loaded(path));
    set(&may_end, true);
    pthread_join(t, NULL);
}

/* What it had registered with the process is gone with it. */
static void look_what_is_left(void) {
    struct sigaction now;
    CHECK(sigaction(SIGSEGV, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
    CHECK(sigaction(SIGBUS, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
    CHECK(threads() == 1);
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(7);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

/* A thread that is in the middle of a call of the plug-in, though no other one knows of it. */
static void unload_while_a_name_is_looked_for(const char *path, bool archive) {
    void *h = load(path);
    CHECK(call(h, "plugin_resolve") == 0);
    dlclose(h);
    CHECK(is_loaded(path) == archive);
    set(&may_answer, true);
    while (threads() > 1 || is_loaded(path)) usleep(1000);
}

/* Two copies have a runtime each. Handlers of signals are put back in the reverse order. */
static void two_at_once(const char *path, const char *copy) {
    void *a = load(path), *b = load(copy);
    CHECK(call(a, "plugin_start") == 0);
    CHECK(call(b, "plugin_start") == 0);
    CHECK(call(b, "plugin_stop") == 0);
    CHECK(call(a, "plugin_stop") == 0);
    dlclose(a);
    dlclose(b);
    CHECK(!is_loaded(path) && !is_loaded(copy));
}

static bool is_handler_in(const char *path) {
    struct sigaction now;
    Dl_info where;
    CHECK(sigaction(SIGSEGV, NULL, &now) == 0);
    void *handler;
    memcpy(&handler, &now.sa_sigaction, sizeof handler);
    return dladdr(handler, &where) && strcmp(where.dli_fname, path) == 0;
}

/* The first one to stop finds the other's handler, which will put its own back: it stays loaded. */
static void two_that_stop_in_the_wrong_order(const char *path, const char *copy) {
    void *a = load(path), *b = load(copy);
    CHECK(call(a, "plugin_start") == 0);
    CHECK(call(b, "plugin_start") == 0);
    CHECK(call(a, "plugin_stop") == 0);
    dlclose(a);
    CHECK(call(b, "plugin_stop") == 0);
    dlclose(b);
    CHECK(is_loaded(path) && !is_loaded(copy));
    CHECK(is_handler_in(path));
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    bool archive = strcmp(argv[1], "archive") == 0;
    for (int i = 0; i < 20; i++) unload_before_a_thread_ends(argv[2]);
    look_what_is_left();
    unload_while_a_name_is_looked_for(argv[2], archive);
    if (archive) two_at_once(argv[2], argv[3]);
    look_what_is_left();
    if (archive) two_that_stop_in_the_wrong_order(argv[2], argv[3]);
    puts("unloaded in good order");
    return 0;
}
