#include "train/attention.h"

#include <catch2/catch.hpp>

using namespace trainer;
using train::measured_lengths;
using Lengths = std::vector<int32_t>;

TEST_CASE("attention is measured on sequences like the job's") {
  Job job;
  job.spec.data.max_length = 8;
  job.spec.train.batch_size = 4;
  CHECK(measured_lengths(job) == Lengths{2, 4, 6, 8});  // of a classifier: texts
  job.spec.train.batch_size = 16;
  CHECK(measured_lengths(job).front() == 1);
  job.spec.train.batch_tokens = 17;
  CHECK(measured_lengths(job) == Lengths{4, 8});

  job.spec.train.batch_tokens = 0;
  job.spec.train.batch_size = 2;
  job.spec.model.type = spec::ModelType::kGpt;
  CHECK(measured_lengths(job) == Lengths{8, 8});
  job.spec.data.documents = spec::Documents::kSeparate;
  CHECK(measured_lengths(job) == Lengths{6, 2, 6, 2});
  job.spec.data.max_length = 3;
  CHECK(measured_lengths(job) == Lengths{3, 3});
}
