/* SPDX-License-Identifier: MIT */
/* expect: session is not sendable: it must stay where it is */
#include <weft.h>
typedef struct session {
    int socket;
} session;
struct window {
    int id;
};
#undef WEFT_NOT_SENDABLE_TYPES
#define WEFT_NOT_SENDABLE_TYPES WEFT_NOT_SENDABLE(struct window) WEFT_NOT_SENDABLE(struct session)
WEFT_CHAN_TYPE(sessions, session);
