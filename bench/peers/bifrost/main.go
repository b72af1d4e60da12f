// Bifrost as a peer of the benchmarks: its core, and with -governance its governance plugin, behind a bare HTTP front.
//
// The module of Bifrost's own server cannot be had from the module proxy, its core and its plugins can. What is here is the
// least that a server must do (read a request, call the core, write its answer), which flatters Bifrost if anything.
//
//	bifrost -port N -engine http://127.0.0.1:M [-governance]
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/bytedance/sonic"
	bifrost "github.com/maximhq/bifrost/core"
	"github.com/maximhq/bifrost/core/providers/openai"
	"github.com/maximhq/bifrost/core/schemas"
	"github.com/maximhq/bifrost/framework/configstore"
	"github.com/maximhq/bifrost/framework/configstore/tables"
	"github.com/maximhq/bifrost/framework/modelcatalog"
	"github.com/maximhq/bifrost/plugins/governance"
	"github.com/valyala/fasthttp"
)

const (
	virtualKey       = "sk-bf-bench-0123456789"
	virtualKeyHeader = "x-bf-vk"
	unlimited        = int64(1_000_000_000_000)
	priceList        = `{"bench":{"provider":"openai","mode":"chat","input_cost_per_token":1e-6,"output_cost_per_token":2e-6}}`
)

// account is one provider at one address, with the queue of the published benchmarks.
type account struct{ engine string }

func (account) GetConfiguredProviders() ([]schemas.ModelProvider, error) {
	return []schemas.ModelProvider{schemas.OpenAI}, nil
}

func (account) GetKeysForProvider(*context.Context, schemas.ModelProvider) ([]schemas.Key, error) {
	return []schemas.Key{{ID: "k", Name: "k", Value: "none", Weight: 1}}, nil
}

func (a account) GetConfigForProvider(schemas.ModelProvider) (*schemas.ProviderConfig, error) {
	return &schemas.ProviderConfig{
		NetworkConfig:            schemas.NetworkConfig{BaseURL: a.engine, DefaultRequestTimeoutInSeconds: 60},
		ConcurrencyAndBufferSize: schemas.ConcurrencyAndBufferSize{Concurrency: 1_000, BufferSize: 5_000},
	}, nil
}

// prices is the catalogue that a budget needs. Bifrost fetches it from an address of its own; here from us, once.
func prices(ctx context.Context, logger schemas.Logger) (*modelcatalog.ModelCatalog, error) {
	table := httptest.NewServer(http.HandlerFunc(func(to http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(to, priceList)
	}))
	defer table.Close()
	return modelcatalog.Init(ctx, &modelcatalog.Config{PricingURL: &table.URL}, nil, logger)
}

// governed is the plugin in memory: a virtual key is demanded, its budget is charged, its requests and tokens are counted.
func governed(ctx context.Context, logger schemas.Logger) (schemas.Plugin, error) {
	catalogue, err := prices(ctx, logger)
	if err != nil {
		return nil, err
	}
	mandatory, most, hour, limits, budget := true, unlimited, "1h", "limits", "budget"
	now := time.Now()
	config := configstore.GovernanceConfig{
		VirtualKeys: []tables.TableVirtualKey{{
			ID: "vk", Name: "bench", Value: virtualKey, IsActive: true, RateLimitID: &limits, BudgetID: &budget,
			ProviderConfigs: []tables.TableVirtualKeyProviderConfig{{VirtualKeyID: "vk", Provider: "openai", Weight: 1}},
		}},
		Budgets: []tables.TableBudget{{ID: budget, MaxLimit: float64(unlimited), ResetDuration: hour, LastReset: now}},
		RateLimits: []tables.TableRateLimit{{
			ID: limits, TokenMaxLimit: &most, TokenResetDuration: &hour, TokenLastReset: now,
			RequestMaxLimit: &most, RequestResetDuration: &hour, RequestLastReset: now,
		}},
	}
	return governance.Init(ctx, &governance.Config{IsVkMandatory: &mandatory}, logger, nil, &config, catalogue, nil)
}

func main() {
	port := flag.Int("port", 0, "port to listen on")
	engine := flag.String("engine", "", "address of the engine")
	governs := flag.Bool("governance", false, "demand a virtual key and count against its limits")
	flag.Parse()
	ctx := context.Background()
	logger := bifrost.NewDefaultLogger(schemas.LogLevelError)
	config := schemas.BifrostConfig{Account: account{*engine}, Logger: logger, InitialPoolSize: 1_000}
	if *governs {
		plugin, err := governed(ctx, logger)
		if err != nil {
			log.Fatal(err)
		}
		config.Plugins = []schemas.Plugin{plugin}
	}
	client, err := bifrost.Init(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	server := fasthttp.Server{Handler: func(call *fasthttp.RequestCtx) {
		if call.IsPost() {
			answer(call, client)
		} else {
			call.SetBodyString("OK")
		}
	}}
	log.Fatal(server.ListenAndServe(fmt.Sprintf("127.0.0.1:%d", *port)))
}

// answer takes one chat completion through the core.
func answer(call *fasthttp.RequestCtx, client *bifrost.Bifrost) {
	var request openai.OpenAIChatRequest
	if err := sonic.Unmarshal(call.PostBody(), &request); err != nil {
		call.Error(err.Error(), fasthttp.StatusBadRequest)
		return
	}
	ctx := context.WithValue(context.Background(), schemas.BifrostContextKeyVirtualKey, string(call.Request.Header.Peek(virtualKeyHeader)))
	response, failure := client.ChatCompletionRequest(ctx, request.ToBifrostChatRequest())
	status, body := fasthttp.StatusOK, any(response)
	if failure != nil {
		status, body = fasthttp.StatusBadGateway, failure
		if failure.StatusCode != nil {
			status = *failure.StatusCode
		}
	}
	text, err := sonic.Marshal(body)
	if err != nil {
		call.Error(err.Error(), fasthttp.StatusInternalServerError)
		return
	}
	call.SetStatusCode(status)
	call.SetContentType("application/json")
	call.SetBody(text)
}
