/* SPDX-License-Identifier: MIT */
/* Tickets: a wait with a public name: nothing is declared here yet. */
#ifndef WEFT_TICKET_H
#define WEFT_TICKET_H

#include <weft/base.h>

#endif
