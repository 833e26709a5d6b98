/* SPDX-License-Identifier: MIT */
/* weft inside a program that has its own main and its own threads: a plain thread asks, tasks answer, over two channels. Channels work
 * the same from threads and from tasks; a thread sleeps where a task would park. */
#include <pthread.h>
#include <stdio.h>
#include <weft.h>

enum { QUESTIONS = 8, SERVERS = 4 };

static weft_chan *questions, *answers;

/* A plain thread of the program. */
static void *ask(void *arg) {
    (void)arg;
    for (int i = 1; i <= QUESTIONS; i++)
        if (weft_chan_send(questions, &i, WEFT_FOREVER) < 0) break;
    weft_chan_close(questions);
    return NULL;
}

/* A task. */
static int answer(void *arg) {
    (void)arg;
    int q, err = 0;
    WEFT_CHAN_EACH(questions, &q) {
        if ((err = weft_sleep_for(5 * WEFT_MS)) < 0) break;
        q *= 100;
        if ((err = weft_chan_send(answers, &q, WEFT_FOREVER)) < 0) break;
    }
    return err;
}

/* Also a task, run by weft_block_on for the thread that waits for it. */
static int serve(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < SERVERS; i++) weft_spawn(&s, answer, NULL);
    int err = weft_scope_end(&s);
    weft_chan_close(answers);
    return err;
}

static int use_runtime(void) {
    pthread_t asker;
    int sum = 0, a, result;
    weft_task *server;
    if (pthread_create(&asker, NULL, ask, NULL) != 0) return WEFT_ENOMEM;
    int err = weft_task_start(&server, serve, NULL, &(weft_task_opts){.name = "server"});
    if (err) weft_chan_close(questions); /* lets the thread go */
    while (!err && weft_chan_recv(answers, &a, weft_after(WEFT_SECOND)) == 0) sum += a;
    if (!err) err = weft_task_join(server, &result, WEFT_FOREVER);
    pthread_join(asker, NULL);
    printf("the answers add up to %d\n", sum);
    return err ? err : result;
}

static int hello(void *name) {
    return printf("%s runs as task %llu\n", (const char *)name, (unsigned long long)weft_self()) < 0;
}

int main(void) {
    int err = weft_start(&(weft_config){.workers = 2});
    if (err) {
        fprintf(stderr, "embed: %s\n", weft_strerror(err));
        return 1;
    }
    questions = weft_chan_new(sizeof(int), 0);
    answers = weft_chan_new(sizeof(int), 0);
    err = questions && answers ? weft_block_on(hello, "block_on") : WEFT_ENOMEM;
    if (!err) err = use_runtime();
    int stop = weft_stop(weft_after(WEFT_SECOND));
    weft_chan_unref(questions);
    weft_chan_unref(answers);
    printf("end: %s, %s\n", weft_strerror(err), weft_strerror(stop));
    return err || stop ? 1 : 0;
}
