/* call.h - see call.c. */
#ifndef EGPU_LIVE_CALL_H
#define EGPU_LIVE_CALL_H

/* PTX of LIVE_CALL_RUN and LIVE_CALL_AT; NULL: another name. */
const char *live_call_text(const char *name);

#endif
