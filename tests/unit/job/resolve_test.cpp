#include <catch2/catch.hpp>

#include "job/job.h"
#include "spec/load.h"

using namespace trainer;

TEST_CASE("what a spec leaves open is resolved") {
  auto spec = spec::parse(
      "job: {name: a}\ndata: {train: {path: t.tsv, text: a, label: b}, validation: {path: v.tsv}}", "x");
  World world;
  world.size = 4;
  const Job job = resolve(spec, world, 0);
  CHECK(job.output_dir == "runs/a");
  CHECK(job.global_batch == 64);
  CHECK(job.evaluation_every == 0);
  CHECK(job.backend == "gloo");
  CHECK_FALSE(job.cuda);
  CHECK(job.spec.train.epochs == 3);
  CHECK(resolve(spec, world, 8).backend == "nccl");
}
