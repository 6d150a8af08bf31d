#pragma once

#include <string>
#include <vector>

#include "job/faults.h"

namespace trainer {

// What resolve() does for model.type recommender: fills in what the spec leaves open, reports what does not fit
// together, and warns of what has no effect.
void resolve_recommender(spec::JobSpec& spec, bool cuda, JobFaults& faults,
                         std::vector<std::string>& warnings);

}  // namespace trainer
