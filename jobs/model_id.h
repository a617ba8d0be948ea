/* Which model this is: one hash that tells it from others, without reading all of the weights. */
#ifndef NS_MODEL_ID_H
#define NS_MODEL_ID_H

#include "src/err.h"

/* SHA-256 in hex over the small files (configuration, tokenizer, preprocessor), each tensor's name,
 * type and shape, and samples of the weights in order of name: tensors of up to 64 KiB whole, 4 KiB
 * of larger ones, expert 0 for all of a layer; at most 4096 reads and 16 MiB. Which file holds a
 * tensor, and where, is left out: a repacked model is the same model. */
enum status model_id(const char *dir, char sha256[65], struct err *e);

#endif
