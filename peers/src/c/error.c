/* The text of a thread's last failure. */
#include "peer.h"

static _Thread_local char text[512];

const char *peer_error(void) { return text; }

int peer_failed(const char *call, const char *why) {
  snprintf(text, sizeof text, "%s: %s", call, why ? why : "no reason given");
  return PEER_FAILED;
}
