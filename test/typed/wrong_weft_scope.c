/* SPDX-License-Identifier: MIT */
/* expect: struct weft_scope is not sendable: it must stay where it is */
#include <weft.h>
WEFT_CHAN_TYPE(elements, struct weft_scope);
