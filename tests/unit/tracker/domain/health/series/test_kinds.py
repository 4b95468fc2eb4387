"""What printed names say, as trainers print them."""

from collections.abc import Mapping

import pytest

from tracker.domain.health.series.kinds import NumberKind, number_kind, training_numbers

NAMES: Mapping[NumberKind, str] = {
    NumberKind.LOSS: "loss,lm loss,trl,train_loss,train loss,train/loss,actor/loss",
    NumberKind.GRADIENT: "grad_norm,grad,grad norm,norm,gradient_norm,train/grad_norm,gnorm,grad_norm/layer.3",
    NumberKind.LEARNING_RATE: "lr,learning_rate,learning rate,train/learning_rate,lr/group0,lr-adamw",
    NumberKind.RATE: "tok/s,tok/sec,tokens/s,samples/s,it/s,tps,tps/gpu,tgs,throughput,samples per second"
    ",tokens_per_second,tokens per gpu per second (tgs),train_speed(iter/s),steps/sec",
    NumberKind.STEP_TIME: "dt,time,step_avg,step_time,iter_time,iteration time,elapsed time per iteration (ms),s/it",
    NumberKind.MEMORY: "mem,memory,memory(gib),gpu_mem,max_memory_allocated,peak_mem_gb,rss,system/gpu.0.memory",
    NumberKind.NOT_TRAINING: "val_loss,eval_loss,validation bpb,test/acc,eval_samples_per_second,val/loss,predict_loss",
    NumberKind.UNSTEADY: "train_time,total time,elapsed_time,mfu,bf16_mfu,tflops,eta,reward_std,rewards/std,ppl",
    NumberKind.OTHER: "epoch,lrm,loss scale,entropy,kl,reward,consumed samples,members,premium,value_loss,frac",
}


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for kind, text in NAMES.items() for name in text.split(",")])
def test_a_name_says_what_the_number_is(name: str, kind: NumberKind) -> None:
    assert number_kind(name) is kind


ROWS: Mapping[str, str] = {
    "epoch,loss,aux/loss,grad": "loss,epoch,grad",
    "dt,lr,tok/sec,tps": "tok/sec,lr",
    "time,step_avg,lr": "time,lr",
    "train loss,val loss": "train loss",
    "val_loss,step_avg,epoch": "",
    "value_loss,policy/loss,kl": "policy/loss,value_loss,kl",
    "loss,train_runtime": "",
    "total_steps": "total_steps",
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_one_loss_and_one_speed_of_training(row: str) -> None:
    assert ",".join(name for name, _ in training_numbers(tuple(row.split(",")))) == ROWS[row]
