/* SPDX-License-Identifier: MIT */
/* Names. getaddrinfo waits as long as it likes, and cannot be told to stop: each question gets a thread of its own, which answers through a
 * channel, or into nothing if nobody waits any more. At most THREADS at a time; the others wait for one of these to end. Not the blocking pool's:
 * a call there lives in the frame of who waits for it, who could not leave at its deadline. */
#include <netdb.h>

#include "net/net.h"
#include "os/os.h"
#include "task/task.h"

#include <weft/chan.h>
#include <weft/sync.h>

enum { THREADS = 64 };

typedef struct {
    char host[256], service[32];
    weft_chan *answered; /* capacity 1; both sides have a reference */
    _Atomic uint32_t refs;
    int err;
    weft_addrs addrs;
} question;

static weft_sem places;
static weft_once made;

static int make_places(void *arg) {
    (void)arg;
    return weft_sem_init(&places, THREADS);
}

void weft__names_forget(void) {
    (void)make_places(NULL); /* the threads that had some are not there */
}

static void drop(question *q) {
    if (weft__sub(&q->refs, 1, acq_rel) != 1) return; /* the last one sees what the other did */
    weft_chan_unref(q->answered);
    weft__free(q);
}

/* An unknown service is a wrong argument, not an unknown host. */
static int error_of(int gai) {
    switch (gai) {
    case 0:
        return 0;
    case EAI_MEMORY:
        return WEFT_ENOMEM;
    case EAI_AGAIN:
        return WEFT_EAGAIN;
    case EAI_SERVICE:
        return WEFT_EINVAL;
    case EAI_SYSTEM:
        return errno ? -errno : WEFT_ENOHOST;
    default:
        return WEFT_ENOHOST;
    }
}

static int ask(question *q) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *found = NULL;
    if (weft__fault()) return WEFT_ENOMEM;
    int err = error_of(getaddrinfo(q->host, q->service, &hints, &found));
    if (err) return err;
    for (struct addrinfo *a = found; a && q->addrs.count < WEFT_ADDRS_MAX; a = a->ai_next) {
        weft_addr *to = &q->addrs.at[q->addrs.count++];
        memcpy(&to->sa, a->ai_addr, a->ai_addrlen);
        to->len = a->ai_addrlen;
    }
    freeaddrinfo(found);
    return q->addrs.count ? 0 : WEFT_ENOHOST;
}

static void *answer(void *arg) {
    question *q = arg;
    char done = 1;
    q->err = ask(q);
    (void)weft_chan_send(q->answered, &done, WEFT_POLL); /* there is room */
    drop(q);
    weft_sem_release(&places);
    return NULL;
}

/* In its turn. */
static int start(question *q, weft_deadline deadline) {
    int err = weft_once_run(&made, make_places, NULL);
    if (!err) err = weft_sem_acquire(&places, deadline);
    if (err) return err;
    err = weft__thread_start_detached(answer, q, "weft/names");
    if (err) weft_sem_release(&places);
    return err;
}

static int ask_a_thread(question *q, weft_addrs *out, weft_deadline deadline) {
    char done;
    int err = start(q, deadline);
    if (err) {
        drop(q); /* the thread's */
    } else {
        err = weft_chan_recv(q->answered, &done, deadline);
        if (!err) err = q->err;
        if (!err) *out = q->addrs;
    }
    drop(q);
    return err;
}

static int look_up(const char *host, const char *service, weft_addrs *out, weft_deadline deadline) {
    question *q = weft__calloc(1, sizeof *q);
    if (!q) return WEFT_ENOMEM;
    strcpy(q->host, host);
    strcpy(q->service, service);
    weft__store(&q->refs, 2, relaxed); /* published with the thread */
    if (!(q->answered = weft_chan_new(1, 1))) {
        weft__free(q);
        return WEFT_ENOMEM;
    }
    return ask_a_thread(q, out, deadline);
}

int weft__resolve(const char *host, const char *service, weft_addrs *out, weft_deadline deadline, weft__why *why) {
    out->count = 0;
    if (!host || !service) return weft__addr_wrong(why, "there is no host or no service");
    if (strlen(host) >= sizeof(((question *)0)->host) || strlen(service) >= sizeof(((question *)0)->service))
        return weft__addr_wrong(why, "its host or port is too long");
    if (strpbrk(host, " \t\r\n")) return weft__addr_wrong(why, "a host name has no blanks");
    int err = weft__addr_numeric(host, service, false, out, why);
    if (err != WEFT_EAGAIN) return err;
    err = look_up(host, service, out, deadline);
    if (err == WEFT_ENOHOST) (void)weft__addr_wrong(why, "no host named %s", host);
    if (err == WEFT_EINVAL) (void)weft__addr_wrong(why, "no service named %s", service);
    if (err == WEFT_EAGAIN) (void)weft__addr_wrong(why, "the name %s cannot be looked up now", host);
    return err;
}

int weft_resolve(const char *host, const char *service, weft_addrs *out, weft_deadline deadline) {
    weft__why why = {""};
    int err = weft__cancel_first(weft__me(), deadline);
    if (!err) err = weft__resolve(host, service, out, deadline, &why);
    return err ? weft__net_failed(err, "resolve", host, &why) : 0;
}
