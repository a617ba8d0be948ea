/* Which model this is: one hash that changes with anything that could change its answers, without
 * reading the weights. */
#ifndef NS_MODEL_ID_H
#define NS_MODEL_ID_H

#include "src/err.h"

/* SHA-256 in hex over the small files (configuration, tokenizer, preprocessor) and each tensor's
 * name, type and shape; which file holds it, and where, is left out: a repacked model is the same
 * model. */
enum status model_id(const char *dir, char sha256[65], struct err *e);

#endif
