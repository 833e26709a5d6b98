/* SPDX-License-Identifier: MIT */
/* Pinning a task to the thread it runs on. */
#include "task/task.h"

void weft__pin_set(weft__task *t, uint32_t pins) {
    if (!t->pins != !pins) t->pinned_to->pinned += pins ? 1 : -1;
    t->pins = pins;
    bool special = t->lane || t->pins || t->bound;
    weft__store(&t->b.kind, special ? WEFT_BLOCK_SPECIAL : WEFT_BLOCK_TASK, relaxed); /* it runs: nobody resumes it */
}

void weft_pin(void) {
    weft__slot *s = weft__enter();
    if (!s) return;
    weft__worker *w = weft__self();
    weft__task *t = weft__cur(w);
    if (!(t->b.linked & WEFT_LINK_PINNED)) { /* its end looks at the pins then */
        if (t->b.linked == WEFT_LINK_NONE) weft__block_link(&t->b);
        t->b.linked |= WEFT_LINK_PINNED;
    }
    if (t->pins == 0) t->pinned_to = w;
    weft__pin_set(t, t->pins + 1);
    if (t->inner) t->inner->shape.extra++;
    weft__leave();
}

void weft_unpin(void) {
    weft__slot *s = weft__enter();
    if (!s) return;
    weft__task *t = weft__cur(weft__self());
    uint32_t least = t->extra ? t->extra->pinned : 0;
    if (t->pins <= least)
        weft__die("weft_unpin: task %llu is not pinned%s", (unsigned long long)t->id, least ? " but by WEFT_PINNED" : "");
    weft__pin_set(t, t->pins - 1);
    if (t->inner) t->inner->shape.extra--;
    weft__leave();
}
